// Defines stubs of GSSAPI, which libssh would otherwise link for Kerberos. Kerberos' libraries are
// only available as shared libraries, which not every system has. dslaunch never uses them: for
// hosts that need Kerberos, the system's ssh logs in (--ssh_command).
#include <cstdint>

extern "C" {

const void* GSS_C_NT_HOSTBASED_SERVICE = nullptr;
const void* GSS_C_NT_USER_NAME = nullptr;

#define DSL_UNAVAILABLE(function)                                      \
  uint32_t function() {                                                \
    constexpr uint32_t kUnavailable = uint32_t{16} << 16; /* GSS_S_ */ \
    return kUnavailable;                                               \
  }
DSL_UNAVAILABLE(gss_accept_sec_context)
DSL_UNAVAILABLE(gss_acquire_cred)
DSL_UNAVAILABLE(gss_add_oid_set_member)
DSL_UNAVAILABLE(gss_create_empty_oid_set)
DSL_UNAVAILABLE(gss_delete_sec_context)
DSL_UNAVAILABLE(gss_display_name)
DSL_UNAVAILABLE(gss_display_status)
DSL_UNAVAILABLE(gss_get_mic)
DSL_UNAVAILABLE(gss_import_name)
DSL_UNAVAILABLE(gss_indicate_mechs)
DSL_UNAVAILABLE(gss_init_sec_context)
DSL_UNAVAILABLE(gss_inquire_cred)
DSL_UNAVAILABLE(gss_inquire_cred_by_mech)
DSL_UNAVAILABLE(gss_release_buffer)
DSL_UNAVAILABLE(gss_release_cred)
DSL_UNAVAILABLE(gss_release_name)
DSL_UNAVAILABLE(gss_release_oid)
DSL_UNAVAILABLE(gss_release_oid_set)
DSL_UNAVAILABLE(gss_test_oid_set_member)
DSL_UNAVAILABLE(gss_verify_mic)
#undef DSL_UNAVAILABLE

}  // extern "C"
