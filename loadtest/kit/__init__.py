"""Parts that all benches share: arms, prompts, alternation, intervals, tables, result files."""
