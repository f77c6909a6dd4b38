// Means and variances of groups of channels of an image in nhwc, whose pixels are cut into slices, a block for each.
// WIDTH: channels of a thread. VECTORS: threads of a pixel. ROWS: pixels at once. STEPS: pixels of a thread. EACH:
// channels of a group, a multiple of WIDTH.
template <int WIDTH, int VECTORS, int ROWS, int STEPS, int EACH>
struct tx_sliced {
  static const int width = WIDTH, vectors = VECTORS, rows = ROWS, steps = STEPS, each = EACH;
  static const int threads = VECTORS * ROWS, pixels = ROWS * STEPS;
  static const int groups = VECTORS * WIDTH / EACH, parts = EACH / WIDTH;
  static const int lanes = threads / groups;  // that join slices of one group

  TX_INLINE int row() { return threadIdx.x / VECTORS; }
  TX_INLINE int channel() { return threadIdx.x % VECTORS * WIDTH; }
  // Elements of a group in a slice of an image of ``all`` pixels.
  TX_INLINE float count(int64_t slice, int64_t all) {
    const int64_t left = all - slice * pixels;
    return (float)((left < pixels ? left : pixels) * EACH);
  }
};

// The sum over the threads of this thread's group; all threads of the block call it.
template <class S>
TX_INLINE float tx_group_total(float own) {
  __shared__ float part[S::threads];
  __syncthreads();
  part[threadIdx.x] = own;
  __syncthreads();
  const int first = S::channel() / S::each * S::parts;
  float total = 0.0f;
  for (int r = 0; r < S::rows; r++)
    for (int k = 0; k < S::parts; k++) total += part[r * S::vectors + first + k];
  return total;
}

// Leaves the mean of every group in this slice, then of every group the sum of squares about it. load(v, pixel): WIDTH
// channels of a pixel.
template <class S, class Load>
TX_INLINE void tx_group_sums(float* sums, int64_t slice, int64_t all, Load load) {
  float v[S::steps][S::width];
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int e = 0; e < S::steps; e++) {
    const int64_t pixel = slice * S::pixels + e * S::rows + S::row();
    if (pixel >= all) break;
    load(v[e], pixel);
#pragma unroll
    for (int k = 0; k < S::width; k++) sum += v[e][k];
  }
  const float mean = tx_group_total<S>(sum) / S::count(slice, all);
#pragma unroll
  for (int e = 0; e < S::steps; e++) {
    if (slice * S::pixels + e * S::rows + S::row() >= all) break;
#pragma unroll
    for (int k = 0; k < S::width; k++) squares += (v[e][k] - mean) * (v[e][k] - mean);
  }
  squares = tx_group_total<S>(squares);
  const int group = S::channel() / S::each;
  if (S::row() == 0 && S::channel() % S::each == 0) sums[group] = mean, sums[S::groups + group] = squares;
}

// The sum over the lanes that join slices of one group; all threads of the block call it.
template <class S>
TX_INLINE float tx_lane_total(float own) {
  __shared__ float part[S::threads];
  __syncthreads();
  part[threadIdx.x] = own;
  __syncthreads();
  float total = 0.0f;
  for (int l = 0; l < S::lanes; l++) total += part[l * S::groups + threadIdx.x % S::groups];
  return total;
}

// Mean and 1 / deviation of this thread's group, of what all slices of its image left.
template <class S>
TX_INLINE void tx_group_join(const float* sums, int64_t slices, int64_t all, float epsilon, float& mean, float& scale) {
  __shared__ float means[S::groups], scales[S::groups];
  const int g = threadIdx.x % S::groups, lane = threadIdx.x / S::groups;
  const int64_t end = lane < S::lanes ? slices : 0;
  float sum = 0.0f, squares = 0.0f;
#pragma unroll 4
  for (int64_t s = lane; s < end; s += S::lanes) sum += S::count(s, all) * sums[s * 2 * S::groups + g];
  const float count = (float)all * S::each;
  const float centre = tx_lane_total<S>(sum) / count;
#pragma unroll 4
  for (int64_t s = lane; s < end; s += S::lanes) {
    const float d = sums[s * 2 * S::groups + g] - centre;
    squares += sums[(s * 2 + 1) * S::groups + g] + S::count(s, all) * d * d;
  }
  squares = tx_lane_total<S>(squares);
  if (lane == 0) means[g] = centre, scales[g] = 1.0f / sqrtf(squares / count + epsilon);
  __syncthreads();
  mean = means[S::channel() / S::each], scale = scales[S::channel() / S::each];
}
