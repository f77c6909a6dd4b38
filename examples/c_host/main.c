/* Reads images of digits, 64 floats each, from a file, and prints what they show.
 *
 * The library is that of examples/digits: tactix export digits.plan --c digits
 */
#include <stdio.h>
#include <stdlib.h>

#include "digits.h"

enum { PIXELS = 8 * 8, CLASSES = 10 };

/* The whole file, as floats; the caller frees it. */
static float *read_floats(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    const long bytes = ftell(file);
    rewind(file);
    float *found = bytes > 0 ? malloc((size_t)bytes) : NULL;
    *count = found ? fread(found, sizeof *found, (size_t)bytes / sizeof *found, file) : 0;
    fclose(file);
    return found;
}

static int most_likely(const float *logits) {
    int best = 0;
    for (int i = 1; i < CLASSES; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Runs all images as one batch. Where a call fails the next ones are not made. */
static digits_status recognise(digits_context *context, const float *images, size_t count, float *logits) {
    const int64_t shape[4] = {(int64_t)count, 1, 8, 8};
    digits_status status = digits_set_input_shape(context, DIGITS_INPUT_IMAGE, shape, 4);
    if (status == DIGITS_OK)
        status = digits_bind_input_image(context, images, count * PIXELS);
    if (status == DIGITS_OK)
        status = digits_bind_output_logits(context, logits, count * CLASSES);
    return status == DIGITS_OK ? digits_run(context) : status;
}

int main(int argc, char **argv) {
    size_t floats = 0;
    float *images = argc == 2 ? read_floats(argv[1], &floats) : NULL;
    if (!images) {
        fprintf(stderr, "usage: recognise IMAGES, a file of floats\n");
        return 2;
    }
    const size_t count = floats / PIXELS;
    float *logits = calloc(count ? count : 1, CLASSES * sizeof *logits);
    digits_context *context = NULL;
    digits_status status = digits_create(NULL, &context);
    if (status == DIGITS_OK)
        status = recognise(context, images, count, logits);
    if (status == DIGITS_OK)
        for (size_t i = 0; i < count; i++)
            printf("%d\n", most_likely(logits + i * CLASSES));
    else
        fprintf(stderr, "%s: %s\n", digits_status_name(status), digits_last_error(context));
    digits_destroy(context);
    free(logits);
    free(images);
    return status == DIGITS_OK ? 0 : 1;
}
