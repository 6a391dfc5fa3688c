#include <eigenformer/core/tensor/tensor.hpp>
#include <eigenformer/version.hpp>
#ifdef CLIENT_WITH_IO
#include <eigenformer/io/safetensors/safetensors.hpp>
#endif

#include <cstdint>
#include <filesystem>
#include <iostream>

namespace ef = eigenformer;

int main() {
  auto numbers = ef::Tensor<float>::from({2, 2}, {1, 2, 3, 4});
#ifdef CLIENT_WITH_IO
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / "eigenformer-client.safetensors";
  ef::save_safetensors<float>(file, {{"numbers", numbers}});
  numbers = ef::SafetensorsFile::open(file).tensor<float>("numbers");
  std::filesystem::remove(file);
#endif
  float sum = 0;
  for (const float x : numbers.span()) sum += x;
  std::cout << "eigenformer " << ef::version_string() << ": " << sum << '\n';
  return sum == 10 ? 0 : 1;
}
