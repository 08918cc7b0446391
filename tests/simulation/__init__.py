"""The whole system in one thread on a seed: every handler unchanged, on adapters in memory, with faults.

`loop` is time, `world` what everybody shares, `process` a service that can die, `faults` what goes wrong, `people`,
`executor` and `target` are what is outside, `auditor` judges, `simulate` plays one seed, `teeth` removes guards.
"""
