/* Places between elements of an axis; C and CUDA. */

/* x between two bounds; NaN becomes the lower one. */
TX_INLINE double tx_between(double x, double low, double high) { return x > low ? (x < high ? x : high) : low; }
