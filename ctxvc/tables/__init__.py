"""What sessions spent and did, as rows of a table: `rows` has its columns, `session` reads them, `stats` adds them up."""
