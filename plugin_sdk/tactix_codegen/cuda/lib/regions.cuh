// Bins of regions of an image, along one axis, beside those of regions.h.

// Of the samples of a bin, at begin + (k + 0.5) * step, only those from `from` to `until` can lie in the image: a region
// may be far larger.
struct tx_bin {
  double begin, step;
  int64_t count, from, until;
};
TX_INLINE tx_bin tx_bin_of(double first, double length, int bins, int64_t bin, int ratio, int64_t size) {
  const double each = length / bins, begin = first + (double)bin * each;
  const int64_t count = tx_samples(length, bins, ratio);
  const double step = each / (double)count;
  if (size < 1) return {begin, step, count, 0, 0};
  if (!(step > 0.0)) return {begin, step, count, 0, count};
  // one more at both ends, since these are rounded
  const double low = floor((-1.0 - begin) / step - 0.5) - 1.0, high = ceil(((double)size - begin) / step - 0.5) + 2.0;
  return {begin, step, count, (int64_t)tx_between(low, 0.0, (double)count), (int64_t)tx_between(high, 0.0, (double)count)};
}
