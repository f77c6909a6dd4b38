/* libcudart over host memory, for what loads it as a file: the entries that programs without kernels
 * call, checked as tactix_tensorrt/cuda_stand_in/memory.py does. Everything is done when a call
 * returns, so that streams are in order by themselves.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_PITCH = 12, INVALID_DIRECTION = 21, INVALID_DEVICE = 101, INVALID_HANDLE = 400 };
enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT };
enum place { DEVICE, PINNED };
enum { UNREGISTERED, ON_HOST, ON_DEVICE, NO_DEVICE = -2 }; /* cudaMemoryType, cudaInvalidDeviceId */
enum { FIRST_STREAM = 0x10000, STREAM_STEP = 0x10, CUDA_VERSION = 12090 };

struct pointer_attributes {
  int type, device;
  void *for_device, *for_host;
};

struct allocation {
  uintptr_t start;
  size_t size;
  enum place place;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *table; /* by start */
static size_t count, room;
static uintptr_t *streams; /* those in use */
static size_t stream_count, stream_room;
static uintptr_t next_stream = FIRST_STREAM;
static _Thread_local int last;

static int refuse(int status, const char *call, const char *why, const void *where) {
  fprintf(stderr, "[tactix] [E] CUDA stand-in: %s: %p %s\n", call, where, why);
  last = status;
  return status;
}

/* The number of allocations that start at or before an address. */
static size_t behind(uintptr_t address) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (table[middle].start <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

static struct allocation *holding(uintptr_t address) {
  size_t after = behind(address);
  struct allocation *found = after ? &table[after - 1] : NULL;
  return found && address - found->start < found->size ? found : NULL;
}

static int grow(void **items, size_t used, size_t *have, size_t each) {
  if (used < *have) return 1;
  size_t more = *have ? 2 * *have : 64;
  void *moved = realloc(*items, more * each);
  if (!moved) return 0;
  *items = moved;
  *have = more;
  return 1;
}

static int is_mapped(const void *start, size_t size) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)start & ~(page - 1);
  if ((uintptr_t)start < page || size > UINTPTR_MAX - (uintptr_t)start) return 0;
  return msync((void *)first, (uintptr_t)start + size - first, MS_ASYNC) == 0;
}

static int allocate(const char *call, void **out, size_t size, enum place place) {
  if (!is_mapped(out, sizeof *out)) return refuse(INVALID_VALUE, call, "cannot hold the result", out);
  *out = NULL;
  if (!size) return SUCCESS;
  size_t page = (size_t)sysconf(_SC_PAGESIZE), all = (size_t)sysconf(_SC_PHYS_PAGES) * page;
  void *made = size > all ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return refuse(OUT_OF_MEMORY, call, "bytes cannot be had", (void *)size);
  pthread_mutex_lock(&lock);
  int fits = grow((void **)&table, count, &room, sizeof *table);
  if (fits) {
    size_t at = behind((uintptr_t)made);
    memmove(table + at + 1, table + at, (count++ - at) * sizeof *table);
    table[at] = (struct allocation){(uintptr_t)made, size, place};
    *out = made;
  }
  pthread_mutex_unlock(&lock);
  if (fits) return SUCCESS;
  munmap(made, size);
  return refuse(OUT_OF_MEMORY, call, "bytes cannot be had", (void *)size);
}

static int release(const char *call, void *start, enum place place) {
  if (!start) return SUCCESS;
  pthread_mutex_lock(&lock);
  struct allocation *found = holding((uintptr_t)start);
  int owned = found && found->start == (uintptr_t)start && found->place == place;
  if (owned) {
    munmap(start, found->size);
    memmove(found, found + 1, (size_t)(table + count-- - found - 1) * sizeof *table);
  }
  pthread_mutex_unlock(&lock);
  return owned ? SUCCESS : refuse(INVALID_VALUE, call, "was freed before, or not allocated by the call's counterpart", start);
}

/* What is wrong with one end of a copy; NULL for nothing. The lock is held. */
static const char *wrong(const void *start, size_t size, int on_device) {
  struct allocation *found = holding((uintptr_t)start);
  if (!found && on_device) return "is no device memory: no allocation has it";
  if (!found) return is_mapped(start, size) ? NULL : "begins what is no memory of this process";
  if (size > found->start + found->size - (uintptr_t)start) return "begins bytes that leave an allocation";
  return on_device && found->place != DEVICE ? "is no device memory: it is page-locked host memory" : NULL;
}

static int is_stream(void *stream) {
  if ((uintptr_t)stream <= 2) return 1; /* the default ones */
  for (size_t i = 0; i < stream_count; i++)
    if (streams[i] == (uintptr_t)stream) return 1;
  return 0;
}

static int check_stream(const char *call, void *stream) {
  pthread_mutex_lock(&lock);
  int known = is_stream(stream);
  pthread_mutex_unlock(&lock);
  return known ? SUCCESS : refuse(INVALID_HANDLE, call, "is no stream that was made here and not destroyed since", stream);
}

static int copy(const char *call, void *to, const void *from, size_t size, int kind) {
  if (kind < HOST_TO_HOST || kind > DEFAULT) return refuse(INVALID_DIRECTION, call, "goes in no direction that CUDA has", to);
  if (!size) return SUCCESS;
  pthread_mutex_lock(&lock); /* to the end: no free ends memory that is being copied */
  const void *where = to;
  const char *why = wrong(to, size, kind == HOST_TO_DEVICE || kind == DEVICE_TO_DEVICE);
  if (!why) why = wrong(where = from, size, kind == DEVICE_TO_HOST || kind == DEVICE_TO_DEVICE);
  if (!why) memmove(to, from, size);
  pthread_mutex_unlock(&lock);
  return why ? refuse(INVALID_VALUE, call, why, where) : SUCCESS;
}

static int copy_rows(const char *call, char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t height,
                     int kind) {
  if (width > to_pitch || width > from_pitch) return refuse(INVALID_PITCH, call, "has rows that overlap", to);
  for (size_t i = 0; i < height; i++) {
    int status = copy(call, to + i * to_pitch, from + i * from_pitch, width, kind);
    if (status) return status;
  }
  return SUCCESS;
}

static int fill(const char *call, void *to, int value, size_t size) {
  if (!size) return SUCCESS;
  pthread_mutex_lock(&lock);
  const char *why = wrong(to, size, 1);
  if (!why) memset(to, value, size);
  pthread_mutex_unlock(&lock);
  return why ? refuse(INVALID_VALUE, call, why, to) : SUCCESS;
}

static int put(const char *call, int *out, int value) {
  if (!is_mapped(out, sizeof *out)) return refuse(INVALID_VALUE, call, "cannot hold the result", out);
  *out = value;
  return SUCCESS;
}

int cudaMalloc(void **out, size_t size) { return allocate(__func__, out, size, DEVICE); }
int cudaMallocHost(void **out, size_t size) { return allocate(__func__, out, size, PINNED); }
int cudaHostAlloc(void **out, size_t size, unsigned flags) { return allocate(__func__, out, size, PINNED); }
int cudaFree(void *start) { return release(__func__, start, DEVICE); }
int cudaFreeHost(void *start) { return release(__func__, start, PINNED); }

int cudaMemcpy(void *to, const void *from, size_t size, int kind) { return copy(__func__, to, from, size, kind); }
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
  int status = check_stream(__func__, stream);
  return status ? status : copy(__func__, to, from, size, kind);
}
int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind) {
  return copy_rows(__func__, to, to_pitch, from, from_pitch, width, height, kind);
}
int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind, void *stream) {
  int status = check_stream(__func__, stream);
  return status ? status : copy_rows(__func__, to, to_pitch, from, from_pitch, width, height, kind);
}
int cudaPointerGetAttributes(struct pointer_attributes *out, const void *address) {
  if (!is_mapped(out, sizeof *out)) return refuse(INVALID_VALUE, __func__, "cannot hold the result", out);
  pthread_mutex_lock(&lock);
  struct allocation *found = holding((uintptr_t)address);
  *out = (struct pointer_attributes){UNREGISTERED, NO_DEVICE, NULL, (void *)address};
  if (found && found->place == DEVICE) *out = (struct pointer_attributes){ON_DEVICE, 0, (void *)address, NULL};
  else if (found) *out = (struct pointer_attributes){ON_HOST, 0, (void *)address, (void *)address};
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
int cudaMemset(void *to, int value, size_t size) { return fill(__func__, to, value, size); }
int cudaMemsetAsync(void *to, int value, size_t size, void *stream) {
  int status = check_stream(__func__, stream);
  return status ? status : fill(__func__, to, value, size);
}

int cudaStreamCreate(void **out) {
  if (!is_mapped(out, sizeof *out)) return refuse(INVALID_VALUE, __func__, "cannot hold the result", out);
  pthread_mutex_lock(&lock);
  int fits = grow((void **)&streams, stream_count, &stream_room, sizeof *streams);
  if (fits) {
    *out = (void *)(streams[stream_count++] = next_stream);
    next_stream += STREAM_STEP;
  }
  pthread_mutex_unlock(&lock);
  return fits ? SUCCESS : refuse(OUT_OF_MEMORY, __func__, "cannot be a stream's place", out);
}
int cudaStreamCreateWithFlags(void **out, unsigned flags) { return cudaStreamCreate(out); }
int cudaStreamSynchronize(void *stream) { return check_stream(__func__, stream); }
int cudaStreamQuery(void *stream) { return check_stream(__func__, stream); }
int cudaStreamDestroy(void *stream) {
  int known = 0;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < stream_count && !known; i++)
    if (streams[i] == (uintptr_t)stream) {
      streams[i] = streams[--stream_count];
      known = 1;
    }
  pthread_mutex_unlock(&lock);
  return known ? SUCCESS : refuse(INVALID_HANDLE, __func__, "is no stream that was made here and not destroyed since", stream);
}

int cudaDeviceSynchronize(void) { return SUCCESS; }
int cudaGetDevice(int *out) { return put(__func__, out, 0); }
int cudaGetDeviceCount(int *out) { return put(__func__, out, 1); }
int cudaRuntimeGetVersion(int *out) { return put(__func__, out, CUDA_VERSION); }
int cudaSetDevice(int number) {
  return number ? refuse(INVALID_DEVICE, __func__, "is no device: the stand-in has one", (void *)(intptr_t)number) : SUCCESS;
}
int cudaGetLastError(void) {
  int found = last;
  last = SUCCESS;
  return found;
}

static const struct { int status; const char *name, *text; } texts[] = {
    {SUCCESS, "cudaSuccess", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
    {INVALID_PITCH, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {INVALID_DIRECTION, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {INVALID_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
};

const char *cudaGetErrorName(int status) {
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (texts[i].status == status) return texts[i].name;
  return "unrecognized error code";
}
const char *cudaGetErrorString(int status) {
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (texts[i].status == status) return texts[i].text;
  return "unrecognized error code";
}
