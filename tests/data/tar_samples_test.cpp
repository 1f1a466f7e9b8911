// Samples of tar archives and of folders of pictures.
#include "data/streams/tar_samples.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/tensor/creation.h"
#include "data/formats/npy.h"
#include "data/formats/picture.h"
#include "data/streams/feed.h"
#include "data/streams/pictures.h"
#include "tests/data/packed.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using namespace troupe::datasets;
using Catch::Contains;
using testing::Folder;
using testing::gzip_of;
using testing::invalid_text;
using testing::Members;
using testing::png_of;
using testing::tar_of;
using testing::zstd_of;

namespace {

#if defined(TROUPE_ARCHIVE) || defined(TROUPE_PICTURES)
std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
#endif

}  // namespace

#ifdef TROUPE_ARCHIVE

namespace {

template <class T>
T get(const Sample& sample, const std::string& field) {
  REQUIRE(sample.contains(field));
  const T* value = sample.at(field).get_if<T>();
  REQUIRE(value);
  return *value;
}

std::string npy_text(const Folder& folder, const Tensor& t) {
  const auto path = folder.path / "made.npy";
  write_npy(path.string(), t);
  return testing::content(path);
}

Members members(const Folder& folder, int64_t from, int64_t to) {
  Members out;
  for (int64_t i = from; i < to; ++i) {
    const std::string key = "part/" + std::to_string(i);
    out.emplace_back(key + ".cls", std::to_string(i) + "\n");
    out.emplace_back(key + ".TXT", std::string(static_cast<size_t>(i * 97 % 1500), 't'));
    out.emplace_back(key + ".meta.json", "{\"n\": " + std::to_string(i) + "}");
    out.emplace_back(key + ".npy", npy_text(folder, full({2}, double(i))));
    out.emplace_back(key + ".bin", "raw");
  }
  return out;
}

}  // namespace

TEST_CASE("files of one name in tar archives are a sample, packed or not", "[data]") {
  const Folder folder, shards;
  const std::string plain = tar_of(members(folder, 0, 20));
  shards.file("a.tar", plain), shards.file("b.tar.gz", gzip_of(tar_of(members(folder, 20, 30))));
  shards.file("c.tar.zst", zstd_of(tar_of(members(folder, 30, 40))));
  const auto samples = tar_samples({shards.path.string()});
  REQUIRE(samples->size() == 40);
  for (const int64_t i : {39, 0, 1, 19, 20, 30}) {
    const Sample sample = samples->read(i);
    CHECK(sample.size() == 6);
    CHECK(get<std::string>(sample, "__key__") == "part/" + std::to_string(i));
    CHECK(get<int64_t>(sample, "cls") == i);
    CHECK(std::ssize(get<std::string>(sample, "txt")) == i * 97 % 1500);
    CHECK(*get<ValueMap>(sample, "meta.json").at("n").get_if<int64_t>() == i);
    CHECK(get<Tensor>(sample, "npy").to_vector<float>() == std::vector<float>(2, float(i)));
    CHECK(get<Bytes>(sample, "bin").size() == 3);
  }
  CHECK(get<Bytes>(tar_samples({shards.path.string()}, {.decode = false})->read(7), "cls").size() == 2);
  Feed feed(Pipeline(samples).shuffle({.seed = 2}).batch(8), {.ahead = {.threads = 2}});
  int64_t sum = 0;
  while (const auto batch = feed.next())
    for (const int64_t n : batch->tensor("cls").to_vector<int64_t>()) sum += n;
  CHECK(sum == 39 * 40 / 2);
}

TEST_CASE("tar archives that are cut off give all samples but the last, and say where they end", "[data]") {
  const Folder folder;
  const std::string whole = tar_of(members(folder, 0, 3), false);
  for (size_t size = 0; size < whole.size(); size += 173) {
    const std::string path = folder.file("a.tar", whole.substr(0, size));
    if (size < 513) {
      CHECK_THAT(invalid_text([&] { tar_samples({path}); }), Contains("a.tar: "));
      continue;
    }
    const auto samples = tar_samples({path});
    INFO("cut to " << size);
    for (int64_t i = 0; i + 1 < samples->size(); ++i) CHECK(get<int64_t>(samples->read(i), "cls") == i);
    CHECK_THAT(invalid_text([&] { samples->read(samples->size() - 1); }),
               Contains("a.tar: its last sample, part/" + std::to_string(samples->size() - 1) +
                        ", may not be whole") &&
                   Contains("byte"));
  }
  const auto cut = tar_samples({folder.file("b.tar", whole)});
  CHECK_THAT(invalid_text([&] { cut->read(2); }),
             Contains("ends at byte " + std::to_string(whole.size()) + " without the blocks of zeros"));
  Feed feed(Pipeline(cut).batch(4).skip_broken());
  CHECK((feed.next()->rows == 2 && feed.report().broken == 1));
}

TEST_CASE("what is wrong in a tar archive is named by archive, file and byte", "[data]") {
  const Folder folder;
  const auto read = [&](const Members& all) {
    const std::string path = folder.file("w.tar", tar_of(all));
    return invalid_text([&] { tar_samples({path})->read(0); });
  };
  CHECK_THAT(read({{"a.cls", "seven"}}),
             Contains("w.tar: a.cls at byte 512: has \"seven\", expected a whole number"));
  CHECK_THAT(read({{"a.txt", ""}, {"a.json", "{"}}), Contains("w.tar: a.json at byte 1024: it is no JSON"));
  CHECK_THAT(read({{"a.npy", "no"}}), Contains("w.tar: a.npy at byte 512: does not begin with"));
  CHECK_THAT(read({{"a.txt", "1"}, {"a.TXT", "2"}}), Contains("has this file twice"));
  CHECK_THAT(read({{"README", "1"}, {"b/.hidden", "2"}}),
             Contains("w.tar: has no sample, which are files of names"));
  CHECK_THAT(read({}), Contains("has no sample"));
  CHECK_THAT(invalid_text([&] { tar_samples({folder.file("t.tar", std::string(2000, 'x'))}); }),
             Contains("t.tar: no tar archive"));
  // Names are bytes: those that are no ASCII stay as they are.
  const std::string name = "\xe6\x97\xa5\xe6\x9c\xac/" + std::string(70, 'l');
  const auto samples = tar_samples({folder.file("n.tar", tar_of({{name + ".cls", "1"}}))});
  CHECK(get<std::string>(samples->read(0), "__key__") == name);
}

TEST_CASE("tar archives are refused in which a header says another size than the file has", "[data]") {
  const Folder folder;
  const auto opened = [&](const std::string& bytes) {
    const std::string path = folder.file("a.tar", bytes);
    return invalid_text([&] { tar_samples({path}); });
  };
  const auto says = [&](const std::string& key, const std::string& value, size_t size, bool last = false) {
    return opened(testing::pax_of(key, value) + tar_of({{"a.txt", std::string(size, 'x')}}, last) +
                  (last ? "" : tar_of({{"b.txt", "y"}})));
  };
  for (const char* key : {"SCHILY.realsize", "GNU.sparse.realsize", "GNU.sparse.size"}) {
    for (const char* value : {"4000", "100000", "8000000000"})
      for (const bool last : {false, true})
        for (const size_t size : {5, 0})
          CHECK_THAT(
              says(key, value, size, last),
              Contains(std::string("a.tar: a.txt at byte 1536 has ") + value + " bytes by its headers, and " +
                       (size ? "5 by the last of them" : "what is behind it begins at byte 1536")));
    for (const char* value : {"4", "400"})
      CHECK_THAT(says(key, value, 5), Contains("and 5 by the last of them"));
    CHECK_THAT(says(key, "-5", 5), Contains("by its headers, and a size below 0"));
  }
  const auto honest = testing::pax_of("SCHILY.realsize", "5") + tar_of({{"a.txt", "hello"}});
  CHECK(get<std::string>(tar_samples({folder.file("h.tar", honest)})->read(0), "txt") == "hello");
}

#else

TEST_CASE("without libarchive a tar archive is refused by the name of the package", "[data]") {
  const Folder folder;
  CHECK_THAT(testing::error_text(ErrorKind::unimplemented,
                                 [&] { tar_samples({folder.file("a.tar", tar_of({{"a.txt", ""}}))}); }),
             Contains("a.tar: this build has no libarchive") && Contains("libarchive-dev"));
}

#endif

#ifdef TROUPE_PICTURES

namespace {

const std::string kFour("\xff\0\0\0\xff\0\0\0\xff\xff\xff\xff", 12);  // red, green; blue, white

}  // namespace

TEST_CASE("pictures are planes of their channels, resized", "[data]") {
  const std::string png = png_of(2, 2, kFour);
  const Tensor whole = picture_of(bytes_of(png), "p", {.dtype = uint8});
  CHECK(whole.shape() == Shape{3, 2, 2});
  CHECK(whole.to_vector<uint8_t>() == std::vector<uint8_t>{255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255});
  CHECK(picture_of(bytes_of(png), "p").to_vector<float>()[0] == 1);
  // A half of the size is the mean.
  const auto mean = picture_of(bytes_of(png), "p", {.height = 1, .width = 1}).to_vector<float>();
  for (const float value : mean) CHECK(value == Approx(0.5));
  CHECK(picture_of(bytes_of(png), "p", {.height = 6, .width = 4}).shape() == Shape{3, 6, 4});
  CHECK(picture_of(bytes_of(png), "p", {.height = 8}).shape() == Shape{3, 8, 8});
  const Tensor grey = picture_of(bytes_of(png), "p", {.channels = 1});
  CHECK((grey.shape() == Shape{1, 2, 2} && grey.to_vector<float>()[3] == 1));

  const std::string jpeg = testing::red_and_blue_jpeg();
  for (const int64_t size : {16, 8, 5, 2}) {
    const Tensor t = picture_of(bytes_of(jpeg), "j", {.height = size, .width = size});
    REQUIRE(t.shape() == Shape{3, size, size});
    const auto values = t.to_vector<float>();
    const auto plane = static_cast<size_t>(size * size);
    CHECK((values[0] > 0.9 && values[2 * plane] < 0.1));  // red
    CHECK((values[static_cast<size_t>(size) - 1] < 0.1 &&
           values[2 * plane + static_cast<size_t>(size) - 1] > 0.9));  // blue
  }
}

TEST_CASE("what is wrong in a PNG file beside its pixels refuses none", "[data]") {
  const Tensor whole = picture_of(bytes_of(png_of(2, 2, kFour)), "p", {.dtype = uint8});
  const auto chunk = [](const std::string& text) { return testing::png_chunk(text); };
  const std::string srgb = chunk(std::string("sRGB\0", 5));
  std::string text = chunk(std::string("tEXtkey\0value", 13));
  text.back() ^= 1;
  for (const std::string& more :
       {chunk("gAMA" + testing::big(0)), srgb + chunk("gAMA" + testing::big(100000)), srgb + srgb, text,
        chunk("tIME1"), chunk("pHYs12"), chunk("iCCPno")}) {
    INFO(more.substr(4, 4));
    const std::string png = png_of(2, 2, kFour, more);
    CHECK(bit_equal(picture_of(bytes_of(png), "p", {.dtype = uint8}), whole));
  }
}

TEST_CASE("pictures are refused whose size would not be after they are resized", "[data]") {
  const std::string line = png_of(1, 1000000, std::string(3000000, 'x'));
  CHECK_THAT(invalid_text([&] { picture_of(bytes_of(line), "p", {.height = 256}); }),
             Contains("[picture] p: resizing it takes 256 x 256000000 pixels, expected 1 to 134217728"));
  const std::string png = png_of(2, 2, kFour), jpeg = testing::red_and_blue_jpeg();
  CHECK_THAT(invalid_text([&] { picture_of(bytes_of(png), "p", {.height = 8, .most_pixels = 63}); }),
             Contains("resizing it takes 8 x 8 pixels"));
  CHECK_THAT(
      invalid_text([&] { picture_of(bytes_of(png), "p", {.height = 1, .width = 9, .most_pixels = 17}); }),
      Contains("resizing it takes 2 x 9 pixels"));
  CHECK_THAT(invalid_text([&] { picture_of(bytes_of(jpeg), "p", {.width = 32, .most_pixels = 256}); }),
             Contains("resizing it takes 32 x 32 pixels"));
  CHECK_NOTHROW(picture_of(bytes_of(jpeg), "p", {.height = 8, .width = 16, .most_pixels = 256}));
}

TEST_CASE("broken pictures are refused, cut at any byte", "[data]") {
  for (const std::string& whole : {png_of(2, 2, kFour), testing::red_and_blue_jpeg()}) {
    CHECK_NOTHROW(picture_of(bytes_of(whole), "p"));
    // The last bytes are marks of the end, without which all pixels are there.
    for (size_t size = 0; size + 16 < whole.size(); ++size) {
      const std::string cut = whole.substr(0, size);
      INFO("cut to " << size << " of " << whole.size());
      CHECK_THAT(invalid_text([&] { picture_of(bytes_of(cut), "p"); }), Contains("[picture] p: "));
    }
  }
  CHECK_THAT(invalid_text([&] { picture_of(bytes_of(std::string("GIF89a")), "a.gif"); }),
             Contains("[picture] a.gif: its 6 bytes begin neither as PNG nor as JPEG data"));
  const std::string png = png_of(2, 2, kFour);
  CHECK_THAT(invalid_text([&] { picture_of(bytes_of(png), "p", {.most_pixels = 3}); }),
             Contains("has 2 x 2 pixels, expected 1 to 3"));
  std::string flipped = png;
  flipped[45] ^= 4;
  CHECK_THAT(invalid_text([&] { picture_of(bytes_of(flipped), "p"); }), Contains("broken PNG data"));
  CHECK_THAT(invalid_text([&] { picture_of(bytes_of(png), "p", {.channels = 4}); }),
             Contains("1 or 3 channels"));
}

TEST_CASE("folders of pictures are classes", "[data]") {
  const Folder folder;
  std::filesystem::create_directories(folder.path / "dogs" / "small");
  std::filesystem::create_directories(folder.path / "cats");
  folder.file("cats/b.PNG", png_of(2, 2, kFour)), folder.file("cats/a.jpg", testing::red_and_blue_jpeg());
  folder.file("dogs/small/c.png", png_of(2, 2, kFour)), folder.file("dogs/notes.txt", "no picture");
  std::filesystem::create_directories(folder.path / ".ipynb_checkpoints" / "old");
  std::filesystem::create_directories(folder.path / "cats" / ".thumbnails");
  for (const char* hidden :
       {".ipynb_checkpoints/a.png", ".ipynb_checkpoints/old/a.png", "cats/.thumbnails/a.png"})
    folder.file(hidden, png_of(2, 2, kFour));
  const std::string path = folder.path.string();
  CHECK(picture_classes(path) == std::vector<std::string>{"cats", "dogs"});
  const auto all = pictures(path, {.height = 4, .width = 4});
  REQUIRE(all->size() == 3);
  Feed feed(Pipeline(all).batch(3));
  const auto batch = feed.next();
  CHECK(batch->tensor("x").shape() == Shape{3, 3, 4, 4});
  CHECK(batch->tensor("y").to_vector<int64_t>() == std::vector<int64_t>{0, 0, 1});
  CHECK_FALSE(pictures((folder.path / "cats").string())->read(0).contains("y"));

  folder.file("dogs/broken.png", png_of(2, 2, kFour).substr(0, 50));
  const auto some = pictures(path, {.height = 4, .width = 4});
  CHECK_THAT(invalid_text([&] { some->read(2); }), Contains("dogs/broken.png: broken PNG data"));
  Feed skips(Pipeline(some).batch(4).skip_broken());
  CHECK((skips.next()->rows == 3 && skips.report().broken == 1));
  folder.file("stray.png", "");
  CHECK_THAT(invalid_text([&] { pictures(path); }), Contains("stray.png lies beside folders of pictures"));
  const Folder none;
  CHECK_THAT(invalid_text([&] { pictures(none.path.string()); }), Contains("has no *.png, *.jpg or *.jpeg"));
  CHECK_THAT(invalid_text([&] { pictures((none.path / "x").string()); }), Contains("cannot be read"));
}

#else

TEST_CASE("without libpng and libjpeg a picture is refused by the names of the packages", "[data]") {
  const std::string png = png_of(1, 1, "abc");
  CHECK_THAT(
      testing::error_text(ErrorKind::unimplemented, [&] { picture_of(std::as_bytes(std::span(png)), "p"); }),
      Contains("libpng-dev and libjpeg62-turbo-dev"));
}

#endif
