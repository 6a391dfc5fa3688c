#include "translator/serving/request.hpp"

#include <array>
#include <cstddef>

namespace eigenformer {

const char* name_of(RequestStatus status) {
  static constexpr std::array names = {"accepted", "queue_full", "too_large", "shut_down",
                                       "done",     "failed",     "cancelled", "deadline_exceeded"};
  return names[static_cast<std::size_t>(status)];
}

}  // namespace eigenformer
