"""Recording by itself: what a host's hooks say becomes requests, and a process beside the host does what they ask.

A hook has no time: it leaves a request and sees to it that a recorder runs. The modules that a hook loads (`places`,
`requests`, `log`, `hooks`, `statusline`) load nothing heavy.
"""
