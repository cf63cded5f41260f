"""Questions to a store: where is this text, when was it in the prompt, who brought it in or out, what did it cost?"""
