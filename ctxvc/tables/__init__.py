"""What sessions spent and did: `rows` are a table of it, `sums` what it comes to, `stats` the sums over a store."""
