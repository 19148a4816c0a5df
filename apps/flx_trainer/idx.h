/// \file idx.h
/// Reads Fashion-MNIST: gzip-compressed files in the IDX format of the MNIST database (yann.lecun.com/exdb/mnist).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flx::trainer {

/// Images of equal size with a label each.
struct Samples {
    std::size_t count = 0;
    std::size_t pixels = 0;            ///< of one image, rows × columns
    std::vector<std::uint8_t> images;  ///< count × pixels, row by row
    std::vector<std::uint8_t> labels;  ///< count, each less than `kClasses`
};

constexpr std::size_t kClasses = 10;

struct Dataset {
    Samples train;
    Samples test;
};

/// Reads the unsigned bytes of an IDX file into `data` and its extents into `shape`. False where the file is missing,
/// truncated, damaged, of another element type, or longer than its header says; `error` is then a sentence.
bool read_idx(const std::string &path, std::vector<std::size_t> &shape, std::vector<std::uint8_t> &data,
              std::string &error);

/// Reads the images and labels of one part and checks that they belong together.
bool read_samples(const std::string &images_path, const std::string &labels_path, Samples &samples, std::string &error);

/// Reads the four files of Fashion-MNIST from `directory`. Where one is missing, `error` names the Debian package.
bool read_fashion_mnist(const std::string &directory, Dataset &dataset, std::string &error);

}  // namespace flx::trainer
