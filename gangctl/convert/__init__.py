"""Makes GangJobs of what other tools submit. Pure: documents or command lines in, a document and notes out."""
