/* Bins of regions of an image, along one axis of size elements; C and CUDA. */

#define TX_MOST_SAMPLES 1048576 /* Of a bin that is larger than any image: what lies outside counts as 0 anyway. */

/* Samples of each bin: ratio, or 0: as many as it has elements, rounded up; none if it has none. */
TX_INLINE int64_t tx_samples(double length, int bins, int ratio) {
    const double each = ceil(length / bins);
    return ratio ? ratio : each > 0.0 ? (each < TX_MOST_SAMPLES ? (int64_t)each : TX_MOST_SAMPLES) : 0;
}

/* The two elements around a place, and their weights: 0 where it lies more than one element outside. */
TX_INLINE void tx_around(double at, int64_t size, int64_t* places, double* weights) {
    const double x = tx_between(at, 0.0, (double)(size - 1)), low = floor(x);
    const double valid = at >= -1.0 && at <= (double)size ? 1.0 : 0.0;
    places[0] = (int64_t)low;
    places[1] = places[0] + 1 < size ? places[0] + 1 : size - 1;
    weights[0] = (1.0 - (x - low)) * valid;
    weights[1] = (x - low) * valid;
}
/* The same of a sample of a bin. */
TX_INLINE void tx_sample(double first, double length, int bins, int64_t count, int64_t bin, int64_t sample, int64_t size,
                         int64_t* places, double* weights) {
    const double inside = (double)bin + ((double)sample + 0.5) / (double)count;
    tx_around(first + inside * length / bins, size, places, weights);
}

/* For each bin the elements of its mean along the axis, rising, and their weights: rows of size, of which the first
   counts[bin] are set. */
#define TX_BIN_WEIGHTS(name, type)                                                                                    \
    TX_INLINE void tx_bin_weights_##name(double first, double length, int bins, int ratio, int64_t size,               \
                                         int32_t* places, type* weights, int64_t* counts) {                            \
        const int64_t count = tx_samples(length, bins, ratio);                                                         \
        for (int64_t b = 0; b < bins; b++) {                                                                           \
            int32_t* p = places + b * size;                                                                            \
            type* w = weights + b * size;                                                                              \
            for (int64_t i = 0; i < size; i++) w[i] = 0;                                                               \
            for (int64_t k = 0; k < count && size; k++) {                                                              \
                int64_t at[2];                                                                                         \
                double of[2];                                                                                          \
                tx_sample(first, length, bins, count, b, k, size, at, of);                                             \
                w[at[0]] += (type)(of[0] / (double)count);                                                             \
                w[at[1]] += (type)(of[1] / (double)count);                                                             \
            }                                                                                                          \
            int64_t n = 0;                                                                                             \
            for (int64_t i = 0; i < size; i++) {                                                                       \
                const type found = w[i];                                                                               \
                if (found == 0) continue;                                                                              \
                w[n] = found;                                                                                          \
                p[n++] = (int32_t)i;                                                                                   \
            }                                                                                                          \
            counts[b] = n;                                                                                             \
        }                                                                                                              \
    }
TX_BIN_WEIGHTS(f32, float)
TX_BIN_WEIGHTS(f64, double)

/* The elements of a bin of a region whose corners are rounded, and belong to it. */
TX_INLINE void tx_whole_bin(double first, double last, int bins, int64_t bin, int64_t size, int64_t* from,
                            int64_t* until) {
    const double begin = floor(first + 0.5), length = floor(last + 0.5) - begin + 1.0;
    const double width = (length > 1.0 ? length : 1.0) / bins;
    *from = (int64_t)tx_between(begin + floor(bin * width), 0.0, (double)size);
    *until = (int64_t)tx_between(begin + ceil((bin + 1) * width), 0.0, (double)size);
}
