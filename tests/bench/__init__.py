"""The benchmark: the product as processes of its own on embedded servers, asked through its public HTTP.

`python -m tests.bench` measures, `python -m tests.bench.profile` shows where one run's time goes. Figures and how they
were taken are in docs/performance.md. No test of the suite runs any of this.
"""
