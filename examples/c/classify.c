/* Names what an image shows.
 *
 *     classify MODEL.onnx IMAGE.pgm|IMAGE.ppm [SCALE]
 *
 * The model takes one image as f32 [batch, channels, height, width], of 1 or 3 channels, and returns a score for each
 * class. Pixels, from 0 to 255, are multiplied by SCALE (1/255). Prints the five classes with the highest scores. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright/tilewright.h>

typedef struct {
    int width, height, channels; /* 1 or 3 */
    unsigned char* pixels;       /* [height, width, channels] */
} image;

static void fail(const char* what, const char* why) {
    fprintf(stderr, "error: %s: %s\n", what, why);
    exit(1);
}

static tilewright_error* error = NULL; /* of the last call */

/* Exits with the message of a failed call. */
static void check(tilewright_status status) {
    if (status == TILEWRIGHT_OK) return;
    fprintf(stderr, "error: %s\n", tilewright_error_message(error));
    if (*tilewright_error_hint(error) != '\0') fprintf(stderr, "hint: %s\n", tilewright_error_hint(error));
    exit(1);
}

/* The next number of a header, behind spaces and comments. */
static int number(FILE* file, const char* path) {
    int c = fgetc(file), n = -1;
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '#') {
        if (c == '#')
            while (c != '\n' && c != EOF) c = fgetc(file);
        c = fgetc(file);
    }
    ungetc(c, file);
    if (fscanf(file, "%d", &n) != 1 || n < 0) fail(path, "no PGM or PPM image");
    return n;
}

/* PGM and PPM, as text (P2, P3) or binary (P5, P6), of 8 bits. */
static image read_image(const char* path) {
    FILE* file = fopen(path, "rb");
    if (file == NULL) fail(path, "cannot be opened");
    if (fgetc(file) != 'P') fail(path, "no PGM or PPM image");
    const int kind = fgetc(file) - '0';
    if (kind != 2 && kind != 3 && kind != 5 && kind != 6) fail(path, "no PGM or PPM image");
    image i;
    i.width = number(file, path);
    i.height = number(file, path);
    i.channels = kind == 3 || kind == 6 ? 3 : 1;
    if (i.width < 1 || i.height < 1 || i.width > 1 << 14 || i.height > 1 << 14) fail(path, "too large, or empty");
    if (number(file, path) != 255) fail(path, "expected 8 bits a pixel");
    const size_t bytes = (size_t)i.width * (size_t)i.height * (size_t)i.channels;
    i.pixels = malloc(bytes);
    if (i.pixels == NULL) fail(path, "not enough memory");
    if (kind >= 5) {
        fgetc(file); /* one space */
        if (fread(i.pixels, 1, bytes, file) != bytes) fail(path, "ends too early");
    } else {
        for (size_t k = 0; k < bytes; ++k) i.pixels[k] = (unsigned char)number(file, path);
    }
    fclose(file);
    return i;
}

/* The image with another size, by the nearest pixel, as planes: [channels, height, width]. */
static float* planes(const image* i, int channels, int height, int width, float scale) {
    float* out = malloc(sizeof(float) * (size_t)channels * (size_t)height * (size_t)width);
    if (out == NULL) fail("the image", "not enough memory");
    float* to = out;
    for (int c = 0; c < channels; ++c)
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x) {
                const size_t row = (size_t)(y * i->height / height), column = (size_t)(x * i->width / width);
                const unsigned char* pixel = i->pixels + (row * (size_t)i->width + column) * (size_t)i->channels;
                float sum = 0; /* of the channels, for a model of one */
                for (int k = 0; k < i->channels; ++k) sum += pixel[k];
                const float value = channels == 1 ? sum / (float)i->channels : pixel[i->channels == 3 ? c : 0];
                *to++ = value * scale;
            }
    return out;
}

static void print_best(const float* scores, size_t count) {
    for (int rank = 0; rank < 5 && rank < (int)count; ++rank) {
        size_t best = count;
        for (size_t k = 0; k < count; ++k) {
            size_t above = 0; /* classes that come before class k */
            for (size_t j = 0; j < count; ++j) above += scores[j] > scores[k] || (scores[j] == scores[k] && j < k);
            if (above == (size_t)rank) best = k;
        }
        if (best < count) printf("class %zu: %.3f\n", best, (double)scores[best]);
    }
}

int main(int argc, char** argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: classify MODEL.onnx IMAGE.pgm|IMAGE.ppm [SCALE]\n");
        return 2;
    }
    tilewright_model* model = NULL;
    tilewright_options options = tilewright_default_options();
    options.cache_folder = ""; /* the next start loads the compiled model */
    check(tilewright_compile_file(argv[1], &options, &model, &error));
    tilewright_io io;
    check(tilewright_input(model, 0, &io, &error));
    if (tilewright_input_count(model) != 1 || io.dtype != TILEWRIGHT_F32 || io.rank != 4)
        fail(argv[1], "expected one input of type f32 and rank 4");

    const image picture = read_image(argv[2]);
    const int64_t channels = io.dims[1] < 0 ? picture.channels : io.dims[1];
    const int64_t height = io.dims[2] < 0 ? picture.height : io.dims[2];
    const int64_t width = io.dims[3] < 0 ? picture.width : io.dims[3];
    if (channels != 1 && channels != 3) fail(argv[1], "expected an image of 1 or 3 channels");
    const float scale = argc > 3 ? (float)atof(argv[3]) : 1 / 255.0f;
    float* pixels = planes(&picture, (int)channels, (int)height, (int)width, scale);

    tilewright_session* session = NULL;
    check(tilewright_session_create(model, 0, &session, &error));
    const int64_t shape[] = {1, channels, height, width};
    const tilewright_tensor input = {TILEWRIGHT_F32, 4, shape, pixels,
                                     sizeof(float) * (size_t)(channels * height * width)};
    check(tilewright_run(session, &input, 1, &error));
    tilewright_tensor output;
    check(tilewright_session_output(session, 0, &output, &error));
    if (output.dtype != TILEWRIGHT_F32) fail(argv[1], "expected scores of type f32");
    print_best(output.data, output.bytes / sizeof(float));

    tilewright_session_free(session);
    tilewright_model_free(model);
    free(pixels);
    free(picture.pixels);
    return 0;
}
