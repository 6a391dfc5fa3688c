// Models that each lack something: what a compiler says of them is tested. Without BAD only the one that
// lacks nothing.
#include <cstdint>
#include <span>
#include <vector>

#include "eigenformer/search/beams/generate.hpp"

namespace ef = eigenformer;

#define LACKS 0
namespace lacks_nothing {
#include "bad_model.hpp"
}
#ifdef BAD
#undef LACKS
#define LACKS 1
namespace lacks_vocabulary_size {
#include "bad_model.hpp"
}
#undef LACKS
#define LACKS 2
namespace lacks_logits {
#include "bad_model.hpp"
}
#undef LACKS
#define LACKS 3
namespace lacks_step {
#include "bad_model.hpp"
}
#undef LACKS
#define LACKS 4
namespace lacks_value_type {
#include "bad_model.hpp"
}
#undef LACKS
#define LACKS 5
namespace lacks_begin {
#include "bad_model.hpp"
}
#endif
