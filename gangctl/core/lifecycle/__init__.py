"""The lifecycle of a gang: its phases, what moves it from one to another, and what is written then."""
