// Defines owning pointers to OpenSSL's objects.
#pragma once

#include <memory>

namespace dslaunch {

template <auto free_function>
struct OpenSslFree {
  template <class T>
  void operator()(T* object) const {
    free_function(object);
  }
};

// An owning pointer to an object of OpenSSL, such as OpenSslPtr<X509, X509_free>.
template <class T, auto free_function>
using OpenSslPtr = std::unique_ptr<T, OpenSslFree<free_function>>;

}  // namespace dslaunch
