#include "data/formats/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "data/formats/picture_pixels.h"
#include "data/formats/unchanged_file.h"

namespace troupe::datasets {
namespace {

// How much each of some pixels side by side gives to one pixel of the new size.
struct Weights {
  int64_t first;
  std::vector<float> of;
};

// A triangle around the place of the pixel, as wide as what it covers.
std::vector<Weights> weights(int64_t from, int64_t to) {
  const double scale = double(from) / double(to), reach = std::max(scale, 1.0);
  std::vector<Weights> out;
  for (int64_t i = 0; i < to; ++i) {
    const double middle = (double(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, std::llround(std::floor(middle - reach + 0.5)));
    const auto last = std::min<int64_t>(from, std::llround(std::floor(middle + reach + 0.5)));
    Weights w{first, {}};
    double sum = 0;
    for (int64_t j = first; j < last; ++j) {
      const double part = std::max(0.0, 1 - std::abs((double(j) + 0.5 - middle) / reach));
      w.of.push_back(static_cast<float>(part));
      sum += part;
    }
    for (float& part : w.of) part = static_cast<float>(part / sum);
    out.push_back(std::move(w));
  }
  return out;
}

// Values from 0 to 255: [channels, height, width] of pixels that lie row by row.
std::vector<float> resized(const detail::PicturePixels& pixels, int64_t height, int64_t width) {
  const int64_t n = pixels.channels;
  const auto across = weights(pixels.width, width), down = weights(pixels.height, height);
  std::vector<float> rows(static_cast<size_t>(pixels.height * width * n)),
      out(static_cast<size_t>(n * height * width));
  for (int64_t y = 0; y < pixels.height; ++y) {
    const uint8_t* from = pixels.values.data() + y * pixels.width * n;
    float* to = rows.data() + y * width * n;
    for (const Weights& w : across) {
      for (int64_t c = 0; c < n; ++c) {
        float sum = 0;
        const uint8_t* at = from + w.first * n + c;
        for (const float part : w.of) sum += part * *at, at += n;
        *to++ = sum;
      }
    }
  }
  std::vector<float> row(static_cast<size_t>(width * n));
  for (int64_t y = 0; y < height; ++y) {
    const Weights& w = down[static_cast<size_t>(y)];
    std::ranges::fill(row, 0.0f);
    for (size_t j = 0; j < w.of.size(); ++j) {
      const float* from = rows.data() + (w.first + static_cast<int64_t>(j)) * width * n;
      for (size_t x = 0; x < row.size(); ++x) row[x] += w.of[j] * from[x];
    }
    for (int64_t c = 0; c < n; ++c)
      for (int64_t x = 0; x < width; ++x)
        out[static_cast<size_t>((c * height + y) * width + x)] = row[static_cast<size_t>(x * n + c)];
  }
  return out;
}

// The pixels as planes, one for each channel, each value by `of`.
template <class T, class Of>
Tensor planes(const detail::PicturePixels& pixels, DType dtype, const Of& of) {
  const int64_t n = pixels.channels, count = pixels.height * pixels.width;
  const Tensor out = empty({n, pixels.height, pixels.width}, dtype);
  T* to = out.data<T>();
  for (int64_t c = 0; c < n; ++c) {
    const uint8_t* from = pixels.values.data() + c;
    for (int64_t i = 0; i < count; ++i, from += n) *to++ = of(*from);
  }
  return out;
}

template <class T, class Of>
Tensor each(const std::vector<float>& values, const Shape& shape, DType dtype, const Of& of) {
  const Tensor out = empty(shape, dtype);
  std::ranges::transform(values, out.data<T>(), of);
  return out;
}

}  // namespace

Tensor picture_of(std::span<const std::byte> bytes, const std::string& name, const PictureOptions& options) {
  if (options.height < 0 || options.width < 0 || (options.channels != 1 && options.channels != 3) ||
      (options.dtype != float32 && options.dtype != uint8))
    throw_invalid(
        fmt::format("[picture] {} x {} pixels of {} channels, {}: expected sizes of 0 or more, 1 or 3 "
                    "channels, float32 or uint8",
                    options.height, options.width, options.channels, troupe::name(options.dtype)));
  const auto pixels = detail::picture_pixels(bytes, options, "[picture] " + name + ": ");
  const auto part = [](auto value) { return static_cast<float>(value) / 255.0f; };
  if (pixels.to_height == pixels.height && pixels.to_width == pixels.width)
    return options.dtype == uint8 ? planes<uint8_t>(pixels, uint8, [](uint8_t value) { return value; })
                                  : planes<float>(pixels, float32, part);
  const Shape shape{pixels.channels, pixels.to_height, pixels.to_width};
  const std::vector<float> values = resized(pixels, pixels.to_height, pixels.to_width);
  if (options.dtype == float32) return each<float>(values, shape, float32, part);
  return each<uint8_t>(values, shape, uint8, [](float value) {
    return static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
  });
}

Tensor read_picture(const std::string& path, const PictureOptions& options) {
  const UnchangedFile file(path, "picture", "a PNG or JPEG file");
  std::vector<std::byte> bytes(file.size());
  file.read(0, bytes);
  return picture_of(bytes, path, options);
}

}  // namespace troupe::datasets
