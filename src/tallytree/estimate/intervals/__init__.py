"""Error bars: guaranteed and typical intervals, and the linear estimates behind them."""
