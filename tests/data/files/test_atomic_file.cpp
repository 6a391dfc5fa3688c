#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "fixtures.hpp"

using namespace eigenformer;
using eigenformer::testing::TemporaryFolder;
using Names = std::vector<std::string>;

namespace {

/// The message of the Error that f throws, or nothing.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Lets no file grow beyond `bytes` while it lives, as a full disk would.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

/// Gives up root's right to write everywhere while it lives.
class WithoutPrivileges {
 public:
  WithoutPrivileges() : user_(::geteuid()) {
    if (user_ == 0) active_ = ::seteuid(65534) == 0;
  }
  ~WithoutPrivileges() {
    if (active_ && ::seteuid(user_) != 0) std::terminate();
  }

 private:
  uid_t user_;
  bool active_ = false;
};

}  // namespace

TEST_CASE("a committed file has exactly the bytes written, and replaces the old one") {
  const TemporaryFolder folder;
  detail::write_file(folder / "a.txt", "old and longer");
  AtomicFile file(folder / "a.txt");
  file.write("new");
  file.write(std::string_view("\0\n", 2));
  CHECK(file.bytes_written() == 5);
  CHECK(detail::read_file(folder / "a.txt") == "old and longer");
  file.commit();
  CHECK(detail::read_file(folder / "a.txt") == std::string("new\0\n", 5));
  CHECK(folder.names() == Names{"a.txt"});
  CHECK_THROWS_AS(file.write("x"), IoError);
  CHECK_THROWS_AS(file.commit(), IoError);
}

TEST_CASE("without commit nothing is left and the old file stays") {
  const TemporaryFolder folder;
  detail::write_file(folder / "a.txt", "old");
  {
    AtomicFile file(folder / "a.txt");
    file.write("new");
    CHECK(folder.names().size() == 2);
  }
  CHECK(folder.names() == Names{"a.txt"});
  CHECK(detail::read_file(folder / "a.txt") == "old");
}

TEST_CASE("a file that outgrows the disk is an IoError and leaves the old one") {
  const TemporaryFolder folder;
  detail::write_file(folder / "a.bin", "old");
  std::string message;
  {
    const FileSizeLimit limit(4096);
    message = message_of<IoError>([&] { detail::write_file(folder / "a.bin", std::string(10000, 'x')); });
  }
  CHECK(contains(message, "cannot write"));
  CHECK(contains(message, "a.bin"));
  CHECK(contains(message, detail::errno_text(EFBIG)));
  CHECK(detail::read_file(folder / "a.bin") == "old");
  CHECK(folder.names() == Names{"a.bin"});
}

TEST_CASE("a full device is reported by its errno") {
  const int full = ::open("/dev/full", O_WRONLY);
  if (full < 0) return;
  const std::string text = "x";
  CHECK(detail::write_all(full, std::as_bytes(std::span<const char>(text.data(), text.size()))) == ENOSPC);
  ::close(full);
}

TEST_CASE("what cannot be written says why") {
  const TemporaryFolder folder;
  CHECK(contains(message_of<IoError>([&] { detail::write_file(folder / "missing/a", "x"); }),
                 detail::errno_text(ENOENT)));
  CHECK(contains(message_of<IoError>([&] { detail::write_file(folder.path(), "x"); }), "not a regular file"));
  CHECK(contains(message_of<IoError>([&] { detail::write_file("/dev/null", "x"); }), "not a regular file"));
  detail::write_file(folder / "file", "x");
  CHECK(contains(message_of<IoError>([&] { detail::write_file(folder / "file/a", "x"); }),
                 detail::errno_text(ENOTDIR)));
  CHECK(folder.names() == Names{"file"});
}

TEST_CASE("a read-only folder is an IoError") {
  const TemporaryFolder folder;
  const std::filesystem::path inner = folder / "inner";
  std::filesystem::create_directory(inner);
  detail::write_file(inner / "a", "old");
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(inner, std::filesystem::perms(0555));
  std::string message;
  {
    const WithoutPrivileges user;
    message = message_of<IoError>([&] { detail::write_file(inner / "a", "new"); });
  }
  CHECK(contains(message, detail::errno_text(EACCES)));
  CHECK(detail::read_file(inner / "a") == "old");
  std::filesystem::permissions(inner, std::filesystem::perms(0755));
}

TEST_CASE("permission bits and symbolic links of the target are kept") {
  const TemporaryFolder folder;
  detail::write_file(folder / "real", "old");
  std::filesystem::permissions(folder / "real", std::filesystem::perms(0640));
  std::filesystem::create_symlink("real", folder / "link");
  detail::write_file(folder / "link", "new");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(detail::read_file(folder / "real") == "new");
  CHECK(std::filesystem::status(folder / "real").permissions() == std::filesystem::perms(0640));
}

TEST_CASE("a mapped file is copy-on-write and survives being replaced") {
  const TemporaryFolder folder;
  detail::write_file(folder / "a", "old");
  const auto map = detail::MappedFile::open(folder / "a");
  map->bytes()[0] = std::byte{'O'};
  detail::write_file(folder / "a", "something new");
  CHECK(map->text() == "Old");
  CHECK(detail::read_file(folder / "a") == "something new");
}

TEST_CASE("empty, missing and special files") {
  const TemporaryFolder folder;
  detail::write_file(folder / "empty", "");
  CHECK(detail::read_file(folder / "empty").empty());
  CHECK(
      contains(message_of<IoError>([&] { detail::read_file(folder / "none"); }), detail::errno_text(ENOENT)));
  CHECK(contains(message_of<IoError>([&] { detail::read_file(folder.path()); }), "not a regular file"));
}
