"""The acme-quantile pack: ranges for quantisation by quantiles of what was seen."""
