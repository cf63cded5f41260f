"""The real Claude Code, headless, in a scratch home, against the scripted Messages API.

with machine(tmp_path) as here:
    here.run("Print the needle.", [call("Bash", command="echo needle")], "Printed.")
    assert here.requests()[-1]["messages"]
"""
