"""The log folded anew, compared with the live rows, and swapped in."""
