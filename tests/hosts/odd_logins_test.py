"""Tests logins beyond keys and known hosts: certificates, host-based logins, Kerberos, sshd's limits, and notices."""

import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import main  # noqa: E402
from ssh_case import NO_PERMISSION, SshCase  # noqa: E402
from test_hosts import STATE, SYSTEM_PATH, wait_until  # noqa: E402

KEY = ".ssh/id_ed25519"


class OddLogin(SshCase):
    def run_on_front(self, *argv):
        done = self.front.run(list(argv))
        self.assertEqual(0, done.returncode, done.stderr)

    def check(self, *says, jobs=2):
        """Runs `jobs` jobs, the first of which copies the agent; returns the last Job."""
        for _ in range(jobs):
            code, job, _ = self.job_on(["node1", "node2"])
            self.assert_code(0, code, job)
            self.assertEqual(2, self.ranks_started())
            self.assert_prints(job, *says)
            self.assert_nothing_left()
        return job


class OneSession(OddLogin):
    host_options = {"sshd_options": {"MaxSessions": "1"}}

    def test_job_runs_with_one_session_per_connection(self):
        self.check()


class ForcedCommand(OddLogin):
    host_options = {"sshd_options": {
        "ForceCommand": "echo This system is monitored.; exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\""}}

    def test_job_runs_after_notice_of_forced_command(self):
        self.check()


class UserCertificate(OddLogin):
    host_options = {"sshd_options": {"TrustedUserCAKeys": f"{STATE}/user_ca.pub", "AuthorizedKeysFile": "none"}}

    def setUp(self):
        super().setUp()
        ca = f"{STATE}/user_ca"
        subprocess.run(["rm", "-f", *(str(self.front.outside_path(ca + end)) for end in ("", ".pub"))], check=True)
        self.run_on_front("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ca)

    def sign(self):
        self.run_on_front("ssh-keygen", "-q", "-s", f"{STATE}/user_ca", "-I", "tester", "-n", "root", f"{self.front.home}/{KEY}.pub")

    def public_key(self):
        text = self.front.run(["ssh-keygen", "-y", "-f", f"{self.front.home}/{KEY}"]).stdout
        self.front.write_file(KEY + ".pub", text)

    def test_uses_certificate_beside_the_key(self):
        self.public_key()
        self.refused(NO_PERMISSION, ["node1", "node2"], says=["login refused"])
        self.sign()
        job = self.check()
        self.assertNotIn("system's ssh", job.stderr)

    def test_uses_certificate_of_ssh_config(self):
        self.public_key()
        self.sign()
        elsewhere = f"{self.front.home}/elsewhere-cert.pub"
        self.run_on_front("mv", f"{self.front.home}/{KEY}-cert.pub", elsewhere)
        self.configure(f"CertificateFile {elsewhere}\n")
        job = self.check(r"reached by the system's ssh, because ssh_config has a CertificateFile", "--ssh_command ssh")
        self.assertEqual(1, job.stderr.count("system's ssh"), "once is enough")
        self.run_on_front("rm", elsewhere)
        self.run_on_front("cp", f"{self.front.home}/{KEY}.pub", elsewhere)  # a public key in place of the certificate
        self.refused(NO_PERMISSION, ["node1", "node2"], says=["login refused", "the system's ssh was tried too"])


class HostCertificate(OddLogin):
    def test_trusts_cert_authority_of_known_hosts(self):
        ca = f"{STATE}/host_ca"
        self.run_on_front("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ca)
        for node in self.hosts.nodes:
            self.run_on_front("ssh-keygen", "-q", "-s", ca, "-h", "-I", node.name, "-n", node.name,
                      f"{STATE}/{node.name}/host_key.pub")
            self.run_on_front("sh", "-c", f"echo HostCertificate {STATE}/{node.name}/host_key-cert.pub >> "
                                  f"{STATE}/{node.name}/sshd_config")
            node.reload_sshd()
        self.addCleanup(self.hosts.trust_all)
        public = self.front.read_file(ca + ".pub").strip()
        self.hosts.set_known_hosts([f"@cert-authority node* {public}"])
        self.check("because known_hosts trusts a @cert-authority")
        # An authority with another key must not be trusted.
        self.hosts.set_known_hosts([f"@cert-authority node* {self.hosts.other_key_line('x').split(' ', 1)[1]}"])
        self.refused(NO_PERMISSION, ["node1", "node2"], says=["verification failed"])


class HostBased(OddLogin):
    """Tests nodes that trust the front host's key, with which ssh-keysign signs for the client."""

    host_options = {"sshd_options": {"HostbasedAuthentication": "yes", "HostbasedUsesNameFromPacketOnly": "yes",
                                     "IgnoreRhosts": "no", "AuthorizedKeysFile": "none"}}

    def setUp(self):
        super().setUp()
        folder = f"{STATE}/front_ssh"  # mounted over the front's /etc/ssh
        self.run_on_front("mkdir", folder)
        self.run_on_front("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/ssh_host_ed25519_key")
        self.run_on_front("sh", "-c", f"echo EnableSSHKeysign yes > {folder}/ssh_config")
        self.run_on_front("mount", "--bind", folder, "/etc/ssh")
        self.addCleanup(self.run_on_front, "umount", "/etc/ssh")
        public = self.front.read_file("/etc/ssh/ssh_host_ed25519_key.pub")
        for node in self.hosts.nodes:
            node.write_file(".shosts", "front root\n", mode=0o600)
            node.write_file(".ssh/known_hosts", f"front {public}")

    def test_system_ssh_does_host_based_login(self):
        self.refused(NO_PERMISSION, ["node1", "node2"], says=["login refused"])
        self.configure("HostbasedAuthentication yes\n")
        job = self.check("the server accepts host-based logins", "--ssh_command ssh")
        self.assertEqual(1, job.stderr.count("system's ssh"), "once is enough")


KERBEROS = f"{STATE}/kerberos"
KERBEROS_CONFIG = f"""
[libdefaults]
  default_realm = TEST
  default_keytab_name = FILE:{KERBEROS}/%s.keytab
  default_ccache_name = FILE:{KERBEROS}/tickets
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  qualify_shortname = ""
[realms]
  TEST = {{
    kdc = %s
    database_name = {KERBEROS}/principal
    key_stash_file = {KERBEROS}/stash
    acl_file = {KERBEROS}/acl
  }}
[domain_realm]
  node1 = TEST
  node2 = TEST
"""


class Kerberos(OddLogin):
    """Tests Kerberos logins in the realm TEST, whose key distribution centre runs on the front host."""

    host_options = {"sshd_options": {"GSSAPIAuthentication": "yes", "PubkeyAuthentication": "no"}}

    def setUp(self):
        super().setUp()
        if not shutil.which("krb5kdc", path=SYSTEM_PATH):
            self.fail("krb5kdc is missing: packaging/install-debian-packages --tests")
        self.run_on_front("rm", "-rf", KERBEROS)
        for host in self.everyone:
            host.write_file(f"{KERBEROS}/{host.name}.conf", KERBEROS_CONFIG % (host.name, self.front.address))
            done = host.run(["mount", "--bind", f"{KERBEROS}/{host.name}.conf", "/etc/krb5.conf"])
            self.assertEqual(0, done.returncode, done.stderr)
            self.addCleanup(host.run, ["umount", "/etc/krb5.conf"])
        self.with_kdc_profile("kdb5_util", "create", "-s", "-r", "TEST", "-P", "master")
        for host, principal in [(self.front, "root"), *((node, f"host/{node.name}") for node in self.hosts.nodes)]:
            self.with_kdc_profile("kadmin.local", "addprinc", "-randkey", f"{principal}@TEST")
            self.with_kdc_profile("kadmin.local", "ktadd", "-k", f"{KERBEROS}/{host.name}.keytab", f"{principal}@TEST")
        self.kdc = self.front.popen(["krb5kdc", "-n"], env={"KRB5_KDC_PROFILE": "/etc/krb5.conf"},
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.kdc.wait, 10)
        self.addCleanup(os.kill, self.kdc.inner_pid, signal.SIGKILL)
        self.configure("GSSAPIAuthentication yes\n")

    def with_kdc_profile(self, *argv):
        done = self.front.run(list(argv), env={"KRB5_KDC_PROFILE": "/etc/krb5.conf"})
        self.assertEqual(0, done.returncode, done.stderr)

    def leftovers(self):
        return [process for process in super().leftovers() if process.name != "krb5kdc"]

    def get_ticket(self):
        def is_there():
            return self.front.run(["kinit", "-k", "root"]).returncode == 0
        wait_until(is_there, 10, "a ticket")

    def test_system_ssh_logs_in_with_kerberos_ticket(self):
        self.get_ticket()
        job = self.check("the server accepts GSSAPI", "--ssh_command ssh")
        self.assertEqual(1, job.stderr.count("system's ssh"), "once is enough")

    def test_hint_without_ticket_names_kinit(self):
        self.refused(NO_PERMISSION, ["node1", "node2"], says=[r"get a Kerberos ticket \(kinit\)"])
        self.get_ticket()
        self.configure("GSSAPIAuthentication no\n")
        self.refused(NO_PERMISSION, ["node1", "node2"], says=[r"\(kinit\) and set GSSAPIAuthentication yes in ssh_config"])


if __name__ == "__main__":
    main()
