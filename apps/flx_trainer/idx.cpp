#include "apps/flx_trainer/idx.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>

namespace flx::trainer {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr std::size_t kMostBytes = std::size_t{1} << 31;

struct GzClose {
    void operator()(gzFile_s *file) const { gzclose_r(file); }
};
using GzFile = std::unique_ptr<gzFile_s, GzClose>;

// True if exactly `bytes` could be read.
bool read_exactly(gzFile file, void *to, std::size_t bytes) {
    auto *at = static_cast<std::uint8_t *>(to);
    while (bytes > 0) {
        const int got = gzread(file, at, static_cast<unsigned>(std::min<std::size_t>(bytes, 1u << 20)));
        if (got <= 0) {
            return false;
        }
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

}  // namespace

bool read_idx(const std::string &path, std::vector<std::size_t> &shape, std::vector<std::uint8_t> &data,
              std::string &error) {
    const GzFile file(gzopen(path.c_str(), "rb"));
    if (!file) {
        error = fmt::format("{} cannot be opened.", path);
        return false;
    }
    std::array<std::uint8_t, 4> magic{};
    if (!read_exactly(file.get(), magic.data(), magic.size())) {
        error = fmt::format("{} is too short or damaged: it has no IDX header.", path);
        return false;
    }
    if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedByte || magic[3] == 0 || magic[3] > 4) {
        error = fmt::format("{} is no IDX file of unsigned bytes.", path);
        return false;
    }
    shape.clear();
    std::size_t bytes = 1;
    for (int i = 0; i < magic[3]; ++i) {
        std::array<std::uint8_t, 4> extent{};
        if (!read_exactly(file.get(), extent.data(), extent.size())) {
            error = fmt::format("{} is truncated within its header.", path);
            return false;
        }
        shape.push_back(std::size_t{extent[0]} << 24 | std::size_t{extent[1]} << 16 | std::size_t{extent[2]} << 8 |
                        std::size_t{extent[3]});
        bytes *= shape.back();
        if (bytes > kMostBytes) {
            error = fmt::format("{} claims to hold more than {} bytes.", path, kMostBytes);
            return false;
        }
    }
    data.resize(bytes);
    if (!read_exactly(file.get(), data.data(), bytes)) {
        error = fmt::format("{} is truncated or damaged: its header promises {} bytes.", path, bytes);
        return false;
    }
    // Reading past the end also makes zlib compare the checksum.
    std::uint8_t beyond = 0;
    const int rest = gzread(file.get(), &beyond, 1);
    if (rest != 0) {
        error = fmt::format("{} is damaged: {}.", path,
                            rest > 0 ? "it holds more than its header says" : "its end or checksum is wrong");
        return false;
    }
    return true;
}

bool read_samples(const std::string &images_path, const std::string &labels_path, Samples &samples,
                  std::string &error) {
    std::vector<std::size_t> image_shape;
    std::vector<std::size_t> label_shape;
    if (!read_idx(images_path, image_shape, samples.images, error) ||
        !read_idx(labels_path, label_shape, samples.labels, error)) {
        return false;
    }
    if (image_shape.size() != 3 || label_shape.size() != 1 || image_shape[0] != label_shape[0] ||
        samples.images.empty()) {
        error = fmt::format("{} and {} do not belong together.", images_path, labels_path);
        return false;
    }
    if (*std::max_element(samples.labels.begin(), samples.labels.end()) >= kClasses) {
        error = fmt::format("{} holds a label that is not below {}.", labels_path, kClasses);
        return false;
    }
    samples.count = image_shape[0];
    samples.pixels = image_shape[1] * image_shape[2];
    return true;
}

bool read_fashion_mnist(const std::string &directory, Dataset &dataset, std::string &error) {
    const std::array<std::string, 4> paths = {
        directory + "/train-images-idx3-ubyte.gz", directory + "/train-labels-idx1-ubyte.gz",
        directory + "/t10k-images-idx3-ubyte.gz", directory + "/t10k-labels-idx1-ubyte.gz"};
    for (const std::string &path : paths) {
        if (access(path.c_str(), R_OK) != 0) {
            error = fmt::format(
                "{} is missing or not readable: install the Debian package dataset-fashion-mnist, or name the "
                "folder of its files with --data.",
                path);
            return false;
        }
    }
    if (!read_samples(paths[0], paths[1], dataset.train, error) ||
        !read_samples(paths[2], paths[3], dataset.test, error)) {
        return false;
    }
    if (dataset.train.pixels != dataset.test.pixels) {
        error = fmt::format("The training and test images in {} differ in size.", directory);
        return false;
    }
    return true;
}

}  // namespace flx::trainer
