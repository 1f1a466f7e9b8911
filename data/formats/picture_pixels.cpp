#include "data/formats/picture_pixels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#ifdef TROUPE_PICTURES
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>
#endif

namespace troupe::datasets::detail {

#ifdef TROUPE_PICTURES

namespace {

// The height and width that options make of a picture.
std::pair<int64_t, int64_t> resized_to(int64_t height, int64_t width, const PictureOptions& options) {
  const auto scaled = [](int64_t size, int64_t to, int64_t from) {
    return std::max<int64_t>(1, std::llround(double(size) * double(to) / double(from)));
  };
  if (options.height > 0 && options.width > 0) return {options.height, options.width};
  if (options.height > 0) return {options.height, scaled(width, options.height, height)};
  if (options.width > 0) return {scaled(height, options.width, width), options.width};
  return {height, width};
}

void check_size(int64_t height, int64_t width, const PictureOptions& options, const std::string& what) {
  if (height < 1 || width < 1 || height > options.most_pixels / width)
    throw_invalid(fmt::format("{} {} x {} pixels, expected 1 to {} (PictureOptions::most_pixels)", what,
                              height, width, options.most_pixels));
}

// The size that a picture of a file is to have. Its rows are resized before its columns are, and what lies in
// memory then is limited, too.
std::pair<int64_t, int64_t> checked_size(int64_t height, int64_t width, const PictureOptions& options,
                                         const std::string& what) {
  check_size(height, width, options, what + "has");
  const auto to = resized_to(height, width, options);
  if (to != std::pair(height, width))
    check_size(std::max(height, to.first), to.second, options, what + "resizing it takes");
  return to;
}

PicturePixels png_pixels(std::span<const std::byte> bytes, const PictureOptions& options,
                         const std::string& what) {
  struct Image : png_image {
    Image() : png_image{} { version = PNG_IMAGE_VERSION; }
    ~Image() { png_image_free(this); }
  } image;
  const auto refuse = [&] { throw_invalid(what + "broken PNG data: " + image.message); };
  if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size())) refuse();
  const auto [height, width] = checked_size(image.height, image.width, options, what);
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  image.format = options.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  PicturePixels out{image.height, image.width, options.channels, {}, height, width};
  out.values.resize(PNG_IMAGE_SIZE(image));
  const png_color black{};
  // A warning is of chunks beside the pixels, which checksums guard.
  if (!png_image_finish_read(&image, &black, out.values.data(), 0, nullptr)) refuse();
  return out;
}

// Broken data make libjpeg call this. It is C, which exceptions may not cross.
struct JpegError {
  jpeg_error_mgr base;
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];

  static JpegError& of(j_common_ptr jpeg) { return *reinterpret_cast<JpegError*>(jpeg->err); }
  [[noreturn]] static void leave(j_common_ptr jpeg) {
    JpegError& e = of(jpeg);
    e.base.format_message(jpeg, e.text);
    std::longjmp(e.back, 1);
  }
  // A warning is of data that are missing or wrong, for which libjpeg would put grey.
  static void warn(j_common_ptr jpeg, int level) {
    if (level >= 0) return;
    const int code = of(jpeg).base.msg_code;
    if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
        code == JWRN_MUST_RESYNC)
      leave(jpeg);
  }
};

struct Jpeg {
  jpeg_decompress_struct reader{};
  JpegError error{};
  Jpeg() {
    reader.err = jpeg_std_error(&error.base);
    error.base.error_exit = JpegError::leave;
    error.base.emit_message = JpegError::warn;
  }
  ~Jpeg() { jpeg_destroy_decompress(&reader); }

  // Nothing that has a destructor may live in these two, which longjmp() leaves.
  bool begin(std::span<const std::byte> bytes, bool grey) {
    if (setjmp(error.back)) return false;
    jpeg_create_decompress(&reader);
    jpeg_mem_src(&reader, reinterpret_cast<const unsigned char*>(bytes.data()),
                 static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&reader, TRUE);
    const bool inks = reader.jpeg_color_space == JCS_CMYK || reader.jpeg_color_space == JCS_YCCK;
    reader.out_color_space = inks ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
    return true;
  }
  bool read(unsigned eighths) {
    if (setjmp(error.back)) return false;
    reader.scale_num = eighths, reader.scale_denom = 8;
    jpeg_start_decompress(&reader);
    return true;
  }
  bool rows(uint8_t* to) {
    if (setjmp(error.back)) return false;
    const size_t row = size_t{reader.output_width} * static_cast<size_t>(reader.output_components);
    while (reader.output_scanline < reader.output_height) {
      JSAMPROW at = to + reader.output_scanline * row;
      jpeg_read_scanlines(&reader, &at, 1);
    }
    jpeg_finish_decompress(&reader);
    return true;
  }
};

// Cyan, magenta, yellow and black, as Adobe's programs write them: inverted.
void print_to_screen(PicturePixels& pixels, int64_t channels) {
  const auto count = static_cast<size_t>(pixels.height * pixels.width);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* ink = &pixels.values[4 * i];
    unsigned rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = (ink[c] * ink[3] + 127u) / 255u;
    uint8_t* to = &pixels.values[static_cast<size_t>(channels) * i];
    if (channels == 1)
      to[0] = static_cast<uint8_t>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
    else
      for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(rgb[c]);
  }
  pixels.channels = channels;
  pixels.values.resize(count * static_cast<size_t>(channels));
}

PicturePixels jpeg_pixels(std::span<const std::byte> bytes, const PictureOptions& options,
                          const std::string& what) {
  Jpeg jpeg;
  const auto refuse = [&] { throw_invalid(what + "broken JPEG data: " + jpeg.error.text); };
  if (!jpeg.begin(bytes, options.channels == 1)) refuse();
  const auto& reader = jpeg.reader;
  const auto [height, width] = checked_size(reader.image_height, reader.image_width, options, what);
  unsigned eighths = 8;  // libjpeg makes halves, quarters and eighths at a part of the cost
  while (eighths > 1 && int64_t{reader.image_height} * (eighths / 2) >= height * 8 &&
         int64_t{reader.image_width} * (eighths / 2) >= width * 8)
    eighths /= 2;
  if (!jpeg.read(eighths)) refuse();
  PicturePixels out{reader.output_height, reader.output_width, reader.output_components, {}, height, width};
  out.values.resize(static_cast<size_t>(out.height * out.width * out.channels));
  if (!jpeg.rows(out.values.data())) refuse();
  if (out.channels == 4) print_to_screen(out, options.channels);
  return out;
}

}  // namespace

PicturePixels picture_pixels(std::span<const std::byte> bytes, const PictureOptions& options,
                             const std::string& what) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\x89PNG\r\n")) return png_pixels(bytes, options, what);
  if (text.starts_with("\xff\xd8\xff")) return jpeg_pixels(bytes, options, what);
  throw_invalid(fmt::format("{}its {} bytes begin neither as PNG nor as JPEG data", what, bytes.size()));
}

#else

PicturePixels picture_pixels(std::span<const std::byte>, const PictureOptions&, const std::string& what) {
  throw_error(ErrorKind::unimplemented,
              what +
                  "this build has no libpng and libjpeg, which read pictures: install "
                  "Debian's libpng-dev and libjpeg62-turbo-dev, and build again");
}

#endif

}  // namespace troupe::datasets::detail
