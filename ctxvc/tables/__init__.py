"""What sessions spent and did: `rows` are a table of it, `sums` add it up, `stats` are the sums over a store."""
