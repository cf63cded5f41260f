"""The forms in which providers take prompts and give replies, a module a form: read here and nowhere else."""
