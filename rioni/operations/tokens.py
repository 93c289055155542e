"""Makes tokens for the file that the setting `auth_tokens` names, at the command line."""

from rioni.storage.tokens.tokens_file import NewToken, add_entry, new_token


__all__ = ["NewToken", "add_entry", "new_token"]
