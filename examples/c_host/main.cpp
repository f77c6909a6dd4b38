// The same as main.c in C++: a class around a context, and a context for each of two threads.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "digits.h"

namespace {

constexpr std::size_t pixels = 8 * 8, classes = 10;

class Recogniser {
public:
    Recogniser() {
        digits_options options{};
        options.threads = 1;
        digits_context *made = nullptr;
        check(digits_create(&options, &made));
        context.reset(made);
    }

    // Of `count` images one digit each.
    void operator()(const float *images, std::size_t count, int *found) {
        std::vector<float> logits(count * classes);
        const std::int64_t shape[] = {static_cast<std::int64_t>(count), 1, 8, 8};
        check(digits_set_input_shape(context.get(), DIGITS_INPUT_IMAGE, shape, 4));
        check(digits_bind_input_image(context.get(), images, count * pixels));
        check(digits_bind_output_logits(context.get(), logits.data(), logits.size()));
        check(digits_run(context.get()));
        for (std::size_t i = 0; i < count; i++) {
            const float *own = logits.data() + i * classes;
            found[i] = static_cast<int>(std::max_element(own, own + classes) - own);
        }
    }

private:
    struct Destroy {
        void operator()(digits_context *c) const { digits_destroy(c); }
    };

    void check(digits_status status) const {
        if (status != DIGITS_OK)
            throw std::runtime_error(std::string(digits_status_name(status)) + ": " + digits_last_error(context.get()));
    }

    std::unique_ptr<digits_context, Destroy> context;
};

// Half of the images each.
void recognise(const std::vector<float> &images, std::vector<int> &found) {
    const std::size_t half = found.size() / 2;
    std::string failed;
    std::thread other([&] {
        try {
            Recogniser{}(images.data(), half, found.data());
        } catch (const std::exception &e) {
            failed = e.what();
        }
    });
    std::string own;
    try {
        Recogniser{}(images.data() + half * pixels, found.size() - half, found.data() + half);
    } catch (const std::exception &e) {
        own = e.what();
    }
    other.join();
    if (!own.empty() || !failed.empty())
        throw std::runtime_error(own.empty() ? failed : own);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: recognise IMAGES, a file of floats\n");
        return 2;
    }
    std::ifstream file(argv[1], std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<float> images(bytes.size() / sizeof(float));
    std::copy_n(bytes.data(), images.size() * sizeof(float), reinterpret_cast<char *>(images.data()));
    std::vector<int> found(images.size() / pixels);
    try {
        recognise(images, found);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    for (int digit : found)
        std::printf("%d\n", digit);
}
