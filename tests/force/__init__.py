"""Proofs by force that the suite leaves out for their length: races by the thousand, servers killed again and again."""
