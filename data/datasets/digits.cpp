// Writes digits: strokes, bent and moved at random, are drawn with a round pen into 28 x 28 pixels.
#include "data/datasets/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/tensor/creation.h"
#include "data/datasets/glyphs.h"

namespace troupe::datasets {
namespace {

constexpr int kSide = 28;
constexpr int kSpanSteps = 5;  // line segments per span of a curve: about one pixel each
using Pixels = std::array<float, kSide * kSide>;

float range(Generator& random, double low, double high) {
  return static_cast<float>(random.uniform(low, high));
}

// What the hand does to a whole digit: a slow bend, then turn, shear and scale, then a shift. Box to pixels.
class Hand {
 public:
  explicit Hand(Generator& random) {
    const float angle = range(random, -0.20, 0.20), shear = range(random, -0.20, 0.20);
    const float tall = range(random, 17.5, 21.5), wide = tall * range(random, 0.80, 1.15);
    const float c = std::cos(angle), s = std::sin(angle);
    xx_ = c * wide, xy_ = (c * shear - s) * tall;
    yx_ = s * wide, yy_ = (s * shear + c) * tall;
    dx_ = kSide / 2.0f + range(random, -2.6, 2.6), dy_ = kSide / 2.0f + range(random, -2.6, 2.6);
    for (Wave* wave : {&along_x_, &along_y_})
      *wave = {range(random, 0, 0.045), range(random, 3, 8), range(random, 0, 2 * std::numbers::pi)};
  }

  Point operator()(Point p) const {
    const float x = p.x - 0.5f + along_x_(p.y), y = p.y - 0.5f + along_y_(p.x);
    return {xx_ * x + xy_ * y + dx_, yx_ * x + yy_ * y + dy_};
  }

 private:
  struct Wave {
    float height, frequency, phase;
    float operator()(float t) const { return height * std::sin(frequency * t + phase); }
  };
  Wave along_x_, along_y_;
  float xx_, xy_, yx_, yy_, dx_, dy_;
};

// A point of the Catmull-Rom curve between b and c.
Point between(Point a, Point b, Point c, Point d, float t) {
  auto blend = [t](float p, float q, float r, float s) {
    return q + 0.5f * t * (r - p + t * (2 * p - 5 * q + 4 * r - s + t * (3 * (q - r) + s - p)));
  };
  return {blend(a.x, b.x, c.x, d.x), blend(a.y, b.y, c.y, d.y)};
}

// The stroke as a run of short lines in the box.
std::vector<Point> flatten(const Stroke& stroke, const std::vector<Point>& points) {
  std::vector<Point> line{points.front()};
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    const Point before = i > 0 ? points[i - 1] : points[i], b = points[i], c = points[i + 1];
    const Point after = i + 2 < points.size() ? points[i + 2] : c;
    for (int k = 1; k <= kSpanSteps; ++k) {
      const float t = static_cast<float>(k) / kSpanSteps;
      line.push_back(stroke.smooth ? between(before, b, c, after, t)
                                   : Point{b.x + t * (c.x - b.x), b.y + t * (c.y - b.y)});
    }
  }
  return line;
}

// Lowers each pixel near the line a-b to its distance from it. Pixel (i, j) has its middle at (j + 0.5, i +
// 0.5).
void measure(Pixels& distance, Point a, Point b, float reach) {
  const float dx = b.x - a.x, dy = b.y - a.y, length2 = std::max(dx * dx + dy * dy, 1e-12f);
  auto first = [&](float p, float q) {
    return std::max(0, static_cast<int>(std::floor(std::min(p, q) - reach)));
  };
  auto last = [&](float p, float q) { return std::min(kSide - 1, static_cast<int>(std::max(p, q) + reach)); };
  for (int i = first(a.y, b.y); i <= last(a.y, b.y); ++i) {
    for (int j = first(a.x, b.x); j <= last(a.x, b.x); ++j) {
      const float px = static_cast<float>(j) + 0.5f - a.x, py = static_cast<float>(i) + 0.5f - a.y;
      const float t = std::clamp((px * dx + py * dy) / length2, 0.0f, 1.0f);
      const float x = px - t * dx, y = py - t * dy;
      float& d = distance[static_cast<size_t>(i * kSide + j)];
      d = std::min(d, x * x + y * y);
    }
  }
}

// Mixes each pixel with its eight neighbours; strength 1 is the whole binomial 3 x 3 filter.
void blur(Pixels& image, float strength) {
  const float side = 0.25f * strength, middle = 1 - 2 * side;
  for (const int step : {1, kSide}) {
    const Pixels from = image;
    for (int i = 0; i < kSide * kSide; ++i) {
      const int place = step == 1 ? i % kSide : i / kSide;
      const float left = place > 0 ? from[static_cast<size_t>(i - step)] : 0;
      const float right = place + 1 < kSide ? from[static_cast<size_t>(i + step)] : 0;
      image[static_cast<size_t>(i)] = middle * from[static_cast<size_t>(i)] + side * (left + right);
    }
  }
}

void draw(int digit, Generator& random, float* out) {
  const auto& ways = glyphs(digit);
  const Glyph& glyph = ways[random.below(ways.size())];
  const Hand hand(random);
  const float pen = range(random, 1.0, 1.8), reach = pen + 1;  // radius in pixels
  const float wobble = range(random, 0.008, 0.030);            // of each point, in the box
  Pixels image;
  image.fill(1e9f);
  for (const Stroke& stroke : glyph) {
    std::vector<Point> points = stroke.points;
    for (Point& p : points) {
      p.x += wobble * static_cast<float>(random.normal());
      p.y += wobble * static_cast<float>(random.normal());
    }
    std::vector<Point> line = flatten(stroke, points);
    for (Point& p : line) p = hand(p);
    for (size_t i = 0; i + 1 < line.size(); ++i) measure(image, line[i], line[i + 1], reach);
  }
  const float ink = range(random, 0.85, 1.0);
  for (float& v : image) v = ink * std::clamp(pen + 0.5f - std::sqrt(v), 0.0f, 1.0f);
  blur(image, range(random, 0.1, 0.8));
  const float noise = range(random, 0.0, 0.10);
  for (float v : image)
    *out++ = std::clamp(v + noise * (2 * static_cast<float>(random.uniform()) - 1), 0.0f, 1.0f);
}

}  // namespace

Dataset generated_digits(int64_t count, uint64_t seed) {
  if (count < 1)
    throw_invalid("[digits] " + std::to_string(count) + " images asked for, expected at least 1");
  Dataset set{empty({count, kSide * kSide}), empty({count}, int64)};
  const Generator base(seed);
  float* x = set.x.data<float>();
  int64_t* y = set.y.data<int64_t>();
  std::vector<int64_t> ten;
  for (int64_t i = 0; i < count; ++i) {
    if (i % 10 == 0) ten = base.split(static_cast<uint64_t>(i)).split(0).permutation(10);
    Generator random = base.split(static_cast<uint64_t>(i));
    y[i] = ten[static_cast<size_t>(i % 10)];
    draw(static_cast<int>(y[i]), random, x + i * kSide * kSide);
  }
  return set;
}

Split generated_split(uint64_t seed) {
  return {generated_digits(10'000, seed), generated_digits(2'000, splitmix64(seed))};
}

}  // namespace troupe::datasets
