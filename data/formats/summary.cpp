#include "data/formats/summary.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/formats/crc32.h"
#include "data/formats/event_file.h"

namespace troupe::datasets {
namespace {

std::string four_bytes(uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
          static_cast<char>(n)};
}

std::string png_part(const std::string& kind, const std::string& data) {
  const std::string body = kind + data;
  return four_bytes(static_cast<uint32_t>(data.size())) + body +
         four_bytes(crc32_of(body.data(), body.size()));
}

// Bytes are by row and pixel, `channels` (1 or 3) of each.
std::string png_of(const std::string& pixels, int64_t height, int64_t width, int64_t channels) {
  std::string rows;
  const auto length = static_cast<size_t>(width * channels);
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) rows += '\0' + pixels.substr(y * length, length);
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
                rows.size(), 6) != Z_OK)
    throw_error(ErrorKind::failed, "[summary] a picture could not be packed");
  packed.resize(size);
  const std::string head = four_bytes(static_cast<uint32_t>(width)) +
                           four_bytes(static_cast<uint32_t>(height)) + '\x08' +
                           (channels == 3 ? '\x02' : '\0') + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + png_part("IHDR", head) + png_part("IDAT", packed) + png_part("IEND", "");
}

}  // namespace

struct Summary::Files {
  EventFile events;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> lines;
  nlohmann::ordered_json line;  // of the step that goes on
  int64_t step = 0;
  bool refused = false;

  explicit Files(const std::string& folder)
      : events(folder), lines(std::fopen((folder + "/steps.jsonl").c_str(), "ae"), std::fclose) {
    if (!lines)
      throw_invalid("[summary] " + folder +
                    "/steps.jsonl cannot be written; expected a file, or none of that name");
  }
  ~Files() { end_line(); }
  void add(const ProtoMessage& value, int64_t at) {
    if (!events.add(value, at)) refuse(events.path());
  }
  void add_scalar(const std::string& tag, double value, int64_t at) {
    if (at != step) end_line();
    step = at;
    if (line.empty())
      line = {{"step", at},
              {"time",
               std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()}};
    line[tag] = std::isfinite(value) ? nlohmann::ordered_json(value)
                                     : nlohmann::ordered_json(fmt::format("{}", value));
  }
  void end_line() {
    if (line.empty()) return;
    const std::string text =
        line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    line.clear();
    if (std::fwrite(text.data(), 1, text.size(), lines.get()) != text.size() || std::fflush(lines.get()) != 0)
      refuse("steps.jsonl");
  }
  void refuse(const std::string& path) {
    if (!refused)
      internal::log::warning("[summary] " + path + " cannot be written any more: its curves end here");
    refused = true;
  }
};

Summary::Summary(const std::string& folder) : files_(std::make_unique<Files>(folder)) {}
Summary::~Summary() = default;
Summary::Summary(Summary&&) noexcept = default;
Summary& Summary::operator=(Summary&&) noexcept = default;

void Summary::scalar(const std::string& tag, double value, int64_t step) {
  files_->add(ProtoMessage().bytes(1, tag).short_real(2, static_cast<float>(value)), step);
  files_->add_scalar(tag, value, step);
}

void Summary::histogram(const std::string& tag, const Tensor& values, int64_t step) {
  constexpr size_t kParts = 30;
  std::vector<double> all = values.to_vector<double>();
  std::erase_if(all, [](double x) { return !std::isfinite(x); });
  double low = 0, high = 0, sum = 0, squares = 0;
  if (!all.empty()) low = std::ranges::min(all), high = std::ranges::max(all);
  for (const double x : all) sum += x, squares += x * x;
  const double width = high > low ? high / kParts - low / kParts : 1;
  std::vector<double> limits(kParts), counts(kParts);
  for (size_t i = 0; i < kParts; ++i) limits[i] = low + width * static_cast<double>(i + 1);
  for (const double x : all) counts[std::min(kParts - 1, static_cast<size_t>((x - low) / width))] += 1;
  const ProtoMessage histogram = ProtoMessage()
                                     .real(1, low)
                                     .real(2, high)
                                     .real(3, static_cast<double>(all.size()))
                                     .real(4, sum)
                                     .real(5, squares)
                                     .reals(6, limits)
                                     .reals(7, counts);
  files_->add(ProtoMessage().bytes(1, tag).bytes(5, histogram.text()), step);
}

void Summary::text(const std::string& tag, const std::string& text, int64_t step) {
  constexpr uint64_t kString = 7;  // DT_STRING
  const ProtoMessage dimension = ProtoMessage().number(1, 1),
                     shape = ProtoMessage().bytes(2, dimension.text());
  const ProtoMessage tensor = ProtoMessage().number(1, kString).bytes(2, shape.text()).bytes(8, text);
  const ProtoMessage plugin = ProtoMessage().bytes(1, "text"), about = ProtoMessage().bytes(1, plugin.text());
  files_->add(ProtoMessage().bytes(1, tag).bytes(8, tensor.text()).bytes(9, about.text()), step);
}

void Summary::picture(const std::string& tag, const Tensor& picture, int64_t step) {
  const bool colours = picture.dim() == 3;
  if ((!colours && picture.dim() != 2) || (colours && picture.size(0) != 3) || picture.numel() == 0)
    throw_invalid("[summary] a picture is {height, width} or {3, height, width}, not of shape " +
                  picture.summary());
  const int64_t height = picture.size(-2), width = picture.size(-1), channels = colours ? 3 : 1,
                plane = height * width;
  const double scale = picture.dtype() == uint8 ? 1 : 255;
  const std::vector<double> all = picture.to_vector<double>();
  std::string pixels(all.size(), '\0');
  for (int64_t at = 0; at < plane; ++at)
    for (int64_t c = 0; c < channels; ++c) {
      const double x = all[static_cast<size_t>(c * plane + at)] * scale;
      pixels[static_cast<size_t>(at * channels + c)] =
          static_cast<char>(x > 0 ? std::lround(std::min(x, 255.0)) : 0);
    }
  const ProtoMessage image = ProtoMessage()
                                 .number(1, static_cast<uint64_t>(height))
                                 .number(2, static_cast<uint64_t>(width))
                                 .number(3, static_cast<uint64_t>(channels))
                                 .bytes(4, png_of(pixels, height, width, channels));
  files_->add(ProtoMessage().bytes(1, tag).bytes(4, image.text()), step);
}

}  // namespace troupe::datasets
