"""Commands for developers, and the code behind them."""
