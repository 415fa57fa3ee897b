"""What the command line prints: tables, drawings and live displays."""
