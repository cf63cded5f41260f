"""Questions to a store: where is this text, when was it in the prompt, who added or removed it, what did it cost?"""
