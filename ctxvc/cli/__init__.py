"""The command line. Only here is anything printed and the environment read."""
