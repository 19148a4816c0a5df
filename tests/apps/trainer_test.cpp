// The trainer's parts: matrix product, gradients, buckets, batches and the reader of the data set.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "apps/flx_trainer/batches.h"
#include "apps/flx_trainer/buckets.h"
#include "apps/flx_trainer/gemm.h"
#include "apps/flx_trainer/idx.h"
#include "apps/flx_trainer/model.h"
#include "apps/flx_trainer/random.h"

namespace flx::trainer {
namespace {

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
    Random random(seed);
    std::vector<float> values(count);
    std::generate(values.begin(), values.end(), [&] { return random.symmetric(); });
    return values;
}

// m, n, k
class Gemm : public testing::TestWithParam<std::tuple<std::size_t, std::size_t, std::size_t>> {};

TEST_P(Gemm, AgreesWithTheDefinition) {
    const auto [m, n, k] = GetParam();
    for (const bool a_transposed : {false, true}) {
        for (const bool b_transposed : {false, true}) {
            // Rows are longer than the matrix, so that a confused stride shows.
            const std::size_t a_stride = (a_transposed ? m : k) + 3;
            const std::size_t b_stride = (b_transposed ? k : n) + 2;
            const std::size_t c_stride = n + 1;
            const auto a = random_values((a_transposed ? k : m) * a_stride, 1);
            const auto b = random_values((b_transposed ? n : k) * b_stride, 2);
            std::vector<float> c(m * c_stride, 77.0f);
            gemm(m, n, k, {a.data(), a_stride, a_transposed}, {b.data(), b_stride, b_transposed}, c.data(), c_stride);
            for (std::size_t i = 0; i < m; ++i) {
                for (std::size_t j = 0; j < n; ++j) {
                    double sum = 0.0;
                    for (std::size_t p = 0; p < k; ++p) {
                        const float x = a_transposed ? a[p * a_stride + i] : a[i * a_stride + p];
                        const float y = b_transposed ? b[j * b_stride + p] : b[p * b_stride + j];
                        sum += static_cast<double>(x) * static_cast<double>(y);
                    }
                    ASSERT_NEAR(c[i * c_stride + j], sum, 1e-6 * static_cast<double>(k) + 1e-7)
                        << i << ", " << j << " transposed " << a_transposed << b_transposed;
                }
                ASSERT_EQ(c[i * c_stride + n], 77.0f) << "beyond the end of row " << i;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gemm,
                         testing::Values(std::tuple(1, 1, 1), std::tuple(6, 32, 8), std::tuple(7, 33, 9),
                                         std::tuple(5, 10, 0), std::tuple(97, 257, 258), std::tuple(13, 10, 128),
                                         std::tuple(200, 48, 513), std::tuple(1, 600, 3)));

TEST(Gemm, ARowsBitsDoNotDependOnTheBatch) {
    constexpr std::size_t kM = 101, kN = 70, kK = 300;
    const auto a = random_values(kM * kK, 3);
    const auto b = random_values(kK * kN, 4);
    std::vector<float> whole(kM * kN);
    gemm(kM, kN, kK, {a.data(), kK}, {b.data(), kN}, whole.data(), kN);
    std::vector<float> row(kN);
    for (std::size_t i = 0; i < kM; ++i) {
        gemm(1, kN, kK, {a.data() + i * kK, kK}, {b.data(), kN}, row.data(), kN);
        ASSERT_TRUE(std::equal(row.begin(), row.end(), whole.begin() + static_cast<std::ptrdiff_t>(i * kN))) << i;
    }
}

TEST(Model, GradientsAgreeWithFiniteDifferences) {
    const std::vector<std::size_t> widths = {12, 9, 7, 5};
    constexpr std::size_t kRows = 8;
    const auto inputs = random_values(kRows * widths[0], 5);
    const std::vector<std::uint8_t> labels = {0, 1, 2, 3, 4, 0, 2, 4};
    Model model(widths, 6);
    model.compute_gradients(inputs.data(), labels.data(), kRows, kRows);
    const std::vector<float> gradients(model.gradients().begin(), model.gradients().end());
    ASSERT_EQ(gradients.size(), 12u * 9 + 9 + 9 * 7 + 7 + 7 * 5 + 5);

    constexpr float kStep = 1e-3f;
    std::size_t compared = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        float &parameter = model.parameters()[i];
        const float before = parameter;
        const auto loss_at = [&](float value) {
            parameter = value;
            return model.compute_gradients(inputs.data(), labels.data(), kRows, kRows) / kRows;
        };
        const double at = loss_at(before);
        const double above = loss_at(before + kStep);
        const double below = loss_at(before - kStep);
        parameter = before;
        // Across a kink of ReLU the one-sided slopes differ, and neither is the derivative.
        const double right = (above - at) / static_cast<double>(kStep);
        const double left = (at - below) / static_cast<double>(kStep);
        if (std::abs(right - left) > 5e-3) {
            continue;
        }
        ++compared;
        ASSERT_NEAR(gradients[i], (above - below) / (2.0 * static_cast<double>(kStep)), 1e-3) << "parameter " << i;
    }
    EXPECT_GT(compared, gradients.size() * 9 / 10);
    EXPECT_GT(*std::max_element(gradients.begin(), gradients.end()), 0.01f);
}

TEST(Model, PartsOfABatchAddUpToItsGradient) {
    constexpr std::size_t kRows = 10;
    const auto inputs = random_values(kRows * 6, 7);
    const std::vector<std::uint8_t> labels = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0};
    Model model({6, 8, 3}, 8);
    const double loss = model.compute_gradients(inputs.data(), labels.data(), kRows, kRows);
    const std::vector<float> whole(model.gradients().begin(), model.gradients().end());
    std::vector<double> sum(whole.size(), 0.0);
    double parts_loss = 0.0;
    for (std::size_t part = 0; part < 12; ++part) {  // more parts than rows: some are empty
        const Range range = part_of(kRows, part, 12);
        parts_loss += model.compute_gradients(inputs.data() + range.begin * 6, labels.data() + range.begin,
                                              range.end - range.begin, kRows);
        for (std::size_t i = 0; i < sum.size(); ++i) {
            sum[i] += model.gradients()[i];
        }
    }
    EXPECT_NEAR(parts_loss, loss, 1e-5);
    for (std::size_t i = 0; i < sum.size(); ++i) {
        ASSERT_NEAR(sum[i], whole[i], 1e-6) << i;
    }
}

TEST(Model, DescentLearnsASeparableTask) {
    const auto inputs = random_values(64 * 2, 9);
    std::vector<std::uint8_t> labels(64);
    for (std::size_t i = 0; i < 64; ++i) {
        labels[i] = inputs[2 * i] > inputs[2 * i + 1] ? 1 : 0;
    }
    Model model({2, 16, 2}, 10);
    for (int step = 0; step < 300; ++step) {
        model.compute_gradients(inputs.data(), labels.data(), 64, 64);
        model.descend(0.1f, 0.9f);
    }
    EXPECT_GE(model.count_correct(inputs.data(), labels.data(), 64), 62u);
}

TEST(Model, OutputsThatAreNoNumbersAreWrong) {
    Model model({2, 4, 3}, 11);
    std::fill(model.parameters().begin(), model.parameters().end(), NAN);
    const std::vector<float> inputs = {1.0f, 2.0f};
    for (const std::uint8_t label : {0, 1, 2}) {
        EXPECT_EQ(model.count_correct(inputs.data(), &label, 1), 0u);
    }
}

TEST(Buckets, CoverEveryElementOnceFromTheEnd) {
    for (const std::size_t elements : {0u, 1u, 7u, 1024u, 1025u}) {
        for (const std::size_t bytes : {1u, 4u, 30u, 4096u, 1u << 20}) {
            std::size_t end = elements;
            for (const Bucket &bucket : plan_buckets(elements, bytes)) {
                ASSERT_EQ(bucket.offset + bucket.count, end);
                ASSERT_GT(bucket.count, 0u);
                ASSERT_LE(bucket.count * sizeof(float), std::max<std::size_t>(bytes, sizeof(float)));
                end = bucket.offset;
            }
            EXPECT_EQ(end, 0u);
        }
    }
}

TEST(Buckets, CorruptionChangesOneChunkAndKeepsNumbers) {
    auto values = random_values(5000, 12);
    std::transform(values.begin(), values.end(), values.begin(), [](float v) { return v * 0.01f; });
    values[2500] = 0.0f;
    const auto before = values;
    corrupt(values);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        changed += values[i] != before[i] ? 1 : 0;
        ASSERT_TRUE(std::isfinite(values[i]));
    }
    EXPECT_EQ(changed, 1024u);
}

TEST(Batches, RanksTogetherTakeEverySampleOnce) {
    Samples samples;
    samples.count = 103;
    samples.pixels = 1;
    for (std::size_t i = 0; i < samples.count; ++i) {
        samples.images.push_back(static_cast<std::uint8_t>(i));
        samples.labels.push_back(static_cast<std::uint8_t>(i % kClasses));
    }
    Batches batches(samples, 100, 32, 13);
    ASSERT_EQ(batches.steps(), 4u);
    EXPECT_EQ(batches.size(3), 4u);
    std::vector<std::vector<float>> epochs;
    for (const std::size_t epoch : {0u, 1u}) {
        batches.begin_epoch(epoch);
        std::vector<float> alone;
        std::vector<float> together;
        Rows rows;
        for (std::size_t step = 0; step < batches.steps(); ++step) {
            batches.load(step, 0, 1, rows);
            alone.insert(alone.end(), rows.inputs.begin(), rows.inputs.end());
            for (std::size_t rank = 0; rank < 5; ++rank) {
                batches.load(step, rank, 5, rows);
                together.insert(together.end(), rows.inputs.begin(), rows.inputs.end());
                ASSERT_EQ(rows.inputs.size(), rows.labels.size());
            }
        }
        EXPECT_EQ(alone, together);
        epochs.push_back(alone);
        std::sort(alone.begin(), alone.end());
        EXPECT_EQ(std::unique(alone.begin(), alone.end()) - alone.begin(), 100);
    }
    EXPECT_NE(epochs[0], epochs[1]);
}

class IdxFiles : public testing::Test {
  protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "flx_idx_XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string write(const std::string &name, const std::vector<std::uint8_t> &bytes) const {
        std::string path = folder_ + "/" + name;
        gzFile file = gzopen(path.c_str(), "wb");
        EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
        EXPECT_EQ(gzclose(file), Z_OK);
        return path;
    }

    bool read(const std::string &path) { return read_idx(path, shape_, data_, error_); }

    // Two images of 2 × 3 pixels.
    std::vector<std::uint8_t> images() const {
        std::vector<std::uint8_t> bytes = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3};
        for (std::uint8_t i = 0; i < 12; ++i) {
            bytes.push_back(static_cast<std::uint8_t>(i * 20));
        }
        return bytes;
    }

    std::string folder_;
    std::vector<std::size_t> shape_;
    std::vector<std::uint8_t> data_;
    std::string error_;
};

TEST_F(IdxFiles, AreReadWithTheirShape) {
    ASSERT_TRUE(read(write("good.gz", images()))) << error_;
    EXPECT_EQ(shape_, (std::vector<std::size_t>{2, 2, 3}));
    ASSERT_EQ(data_.size(), 12u);
    EXPECT_EQ(data_[11], 220);
}

TEST_F(IdxFiles, TruncatedAnywhereAreRefused) {
    const auto whole = images();
    for (std::size_t length = 0; length < whole.size(); ++length) {
        const std::string path =
            write("short.gz", {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
        ASSERT_FALSE(read(path)) << length;
        EXPECT_NE(error_.find(path), std::string::npos);
    }
}

TEST_F(IdxFiles, CutOrDamagedCompressedBytesAreRefused) {
    auto longer = images();
    longer[7] = 200;  // images
    const auto noise = random_values(200 * 6, 14);
    longer.resize(16);
    std::transform(noise.begin(), noise.end(), std::back_inserter(longer),
                   [](float v) { return static_cast<std::uint8_t>(v * 100.0f + 128.0f); });
    const std::string path = write("whole.gz", longer);
    ASSERT_TRUE(read(path)) << error_;
    const auto size = std::filesystem::file_size(path);
    std::filesystem::resize_file(path, size / 2);
    EXPECT_FALSE(read(path));

    write("whole.gz", longer);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size - 6));  // in the checksum
    file.put('\x5a');
    file.close();
    EXPECT_FALSE(read(path));
}

TEST_F(IdxFiles, WrongContentIsRefused) {
    auto bytes = images();
    bytes.push_back(0);
    EXPECT_FALSE(read(write("long.gz", bytes)));
    EXPECT_NE(error_.find("more than its header says"), std::string::npos) << error_;
    bytes = images();
    bytes[2] = 0x0d;  // floats
    EXPECT_FALSE(read(write("floats.gz", bytes)));
    bytes = images();
    bytes[4] = bytes[8] = bytes[12] = 0xff;  // absurd extents: refused before memory is taken
    EXPECT_FALSE(read(write("huge.gz", bytes)));
    EXPECT_FALSE(read(folder_ + "/absent.gz"));
}

TEST_F(IdxFiles, ImagesNeedTheirLabels) {
    const std::string pictures = write("images.gz", images());
    Samples samples;
    EXPECT_TRUE(read_samples(pictures, write("two.gz", {0, 0, 8, 1, 0, 0, 0, 2, 9, 0}), samples, error_)) << error_;
    EXPECT_EQ(samples.count, 2u);
    EXPECT_EQ(samples.pixels, 6u);
    EXPECT_FALSE(read_samples(pictures, write("one.gz", {0, 0, 8, 1, 0, 0, 0, 1, 9}), samples, error_));
    EXPECT_FALSE(read_samples(pictures, write("ten.gz", {0, 0, 8, 1, 0, 0, 0, 2, 10, 0}), samples, error_));
}

TEST_F(IdxFiles, AMissingDatasetNamesThePackage) {
    Dataset dataset;
    EXPECT_FALSE(read_fashion_mnist(folder_, dataset, error_));
    EXPECT_NE(error_.find("dataset-fashion-mnist"), std::string::npos) << error_;
}

}  // namespace
}  // namespace flx::trainer
