"""Tests MPI programs on two test hosts: they must form one world, as under mpirun, with every launcher."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/support")
from hosts_case import HostsCase, main  # noqa: E402
from launcher_case import BUILD, LauncherCase, ROOT, bash  # noqa: E402
from test_hosts import wait_until  # noqa: E402

MPICC = shutil.which("mpicc.openmpi") or shutil.which("mpicc")
MPIRUN = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
MPICH_CC = shutil.which("mpicc.mpich")
MPICH_RUN = shutil.which("mpiexec.hydra")
MPI4PY = """
from mpi4py import MPI
world = MPI.COMM_WORLD
told = world.gather((world.rank, "x" * world.rank))
total = world.allreduce(world.rank)
print(f"rank {world.rank} of {world.size}: {total} {told if world.rank == 0 else ''}")
"""
LINE = re.compile(r"rank \d of \d.*")


def why_not():
    if not (BUILD / "bin" / "dslaunch-pmix").exists():
        return "dslaunch-pmix is not built: there is no libpmix-dev"
    if MPICC is None or MPIRUN is None:
        return "there is no mpicc or no mpirun: libopenmpi-dev, openmpi-bin"
    return None


class MpiCase:
    compiler = MPICC
    mpi = "pmix"
    server = "dslaunch-pmix"

    def setUp(self):
        if self.compiler is None:
            self.skipTest("there is no MPICH: libmpich-dev, mpich")
        super().setUp()
        self.memory = pathlib.Path("/dev/shm")
        self.jobs = []
        self.program = self.folder / "mpi_program"
        subprocess.run([self.compiler, ROOT / "tests" / "support" / "mpi_program.c", "-o", self.program], check=True)

    def assert_one_world(self, job, ranks, nodes, program=r"rank (\d) of (\d), (\d) on its node: sum (\d+), left (\d)"):
        found = sorted(re.findall(program, job.stdout))
        expected = [(str(rank), str(ranks), str(ranks // nodes), str(sum(range(ranks))), str((rank - 1) % ranks))
                    for rank in range(ranks)]
        self.assertEqual(expected, found, job.output)

    def start(self, *arguments, **options):
        job = super().start(*arguments, **options)
        self.jobs.append(job)
        return job

    def assert_no_folder_left(self):
        ids = {found for job in self.jobs for found in re.findall(r"/jobs/(\d+-\d+-[0-9a-f]+)/", job.output)}
        self.assertTrue(ids)

        def left():
            return [path for path in self.memory.glob("dslaunch-pmix-*") if any(job in path.name for job in ids)]
        wait_until(lambda: not left(), 5, "no folder of a server is left")


class OneWorldHere(MpiCase):
    def test_ranks_form_one_world_unless_mpi_is_none(self):
        for arguments, nodes in ((["--num_gpus", "3"], 1), (["--launcher", "local", "--num_nodes", "2", "--num_gpus", "2"], 2)):
            code, job = self.run_job(*arguments, "--show", "all", self.program)
            self.assert_code(0, code, job)
            self.assert_one_world(job, 3 if nodes == 1 else 4, nodes)
            self.assertNotIn("MPI", job.stderr)
        # Each rank gets its own TMPDIR, because two Open MPI programs that make their session folder at the same time
        # may fail.
        code, job = self.run_job("--num_gpus", "2", "--mpi", "none", "--show", "all",
                                 bash('mkdir "$1/$RANK"; TMPDIR="$1/$RANK" exec "$0"'), self.program, self.folder)
        self.assert_code(0, code, job)
        self.assertEqual(2, job.stdout.count("rank 0 of 1"), job.output)
        self.assert_nothing_left()
        self.assert_no_folder_left()

    def test_ranks_form_one_world_through_wrappers(self):
        script = self.folder / "run.sh"
        script.write_text('#!/bin/sh\n"$@"\nexit $?\n')
        script.chmod(0o755)
        for wrapper in (bash('"$0"'), [script], ["env", "A=1", "timeout", "60", "nice"],
                        [sys.executable, "-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"],
                        [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], close_fds=False))"]):
            with self.subTest(wrapper=wrapper):
                code, job = self.run_job("--num_gpus", "2", "--show", "all", wrapper, self.program, "pairs")
                self.assert_code(0, code, job)
                self.assert_one_world(job, 2, 1)

    def test_reports_rank_that_skips_mpi_finalize(self):
        code, job = self.run_job("--num_gpus", "3", self.program, "exit")
        self.assert_code(1, code, job)
        self.assert_prints(job, r"rank 1 \(\w+, local rank 1\)", "ended with 0 without MPI_Finalize")
        self.assert_nothing_left()
        self.assert_no_folder_left()

    def test_reports_rank_that_skips_mpi_init(self):
        for ends in ('[ $RANK = 1 ] && exit 0; exec "$0"', '[ $RANK = 0 ] && sleep 1; [ $RANK = 1 ] && exit 0; exec "$0"',
                     '[ $RANK = 1 ] && sleep 2 && exit 0; exec "$0"'):
            with self.subTest(ends=ends):
                code, job = self.run_job("--num_gpus", "3", bash(ends), self.program)
                self.assert_code(1, code, job)
                self.assert_prints(job, r"rank 1 \(\w+, local rank 1\)", "ended with 0 without MPI_Init")
        self.assert_nothing_left()

    def test_job_without_mpi_starts_no_server(self):
        job = self.start("--num_gpus", "2", bash(': > "$0/up.$RANK"; sleep 1; exit 0'), self.folder)
        self.wait_for_files(job, "up.*", 2)
        self.assertEqual([], [process for process in self.leftovers() if "pmi" in process.comm])
        self.assert_code(0, self.wait(job), job)
        self.assert_no_folder_left()

    def test_mpirun_works_inside_a_rank(self):
        mpirun = [self.mpirun, "-n", "2"] if self.compiler == MPICH_CC else [self.mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2"]
        code, job = self.run_job("--num_gpus", "2", "--show", "all", bash('exec "$@"'), "-", mpirun, self.program)
        self.assert_code(0, code, job)
        self.assertEqual(2, job.stdout.count("rank 0 of 2, 2 on its node: sum 1, left 1"), job.output)
        self.assertNotIn("error", job.stderr)

    def test_restart_forms_new_world(self):
        code, job = self.run_job(
            "--num_gpus", "2", "--max_restarts", "1", "--restart_delay_s", "0", "--mpi", self.mpi, "--show", "all",
            bash('[ $DSLAUNCH_ATTEMPT = 1 ] && exec "$1" kill; exec "$1"'), "-", self.program)
        self.assert_code(0, code, job)
        self.assert_one_world(job, 2, 1)
        self.assert_nothing_left()
        self.assert_no_folder_left()

    def test_killed_server_is_first_cause(self):
        job = self.start("--num_gpus", "2", "--mpi", self.mpi, self.program, "wait", self.folder / "up")
        self.wait_for_files(job, "up.*", 2)
        server, = [process for process in self.leftovers() if process.comm == self.server]
        os.kill(server.pid, signal.SIGKILL)
        self.assert_code(69, self.wait(job), job)
        self.assert_prints(job, "the server of its MPI ranks ended")
        self.assert_nothing_left(within_s=15)
        self.assert_no_folder_left()


class Here(OneWorldHere, LauncherCase):
    mpirun = MPIRUN

    def test_mpi4py_imports_of_any_kind_form_one_world(self):
        python = "/usr/bin/python3"
        if subprocess.run([python, "-c", "import mpi4py"], capture_output=True).returncode != 0:
            self.skipTest("there is no python3-mpi4py")
        use = "print(f'rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size}: {MPI.COMM_WORLD.allreduce(1)}', flush=True)"
        package = self.folder / "solver"
        package.mkdir()
        (package / "__init__.py").write_text(f"def main():\n    from mpi4py import MPI\n    {use}\n")
        (package / "__main__.py").write_text("import solver\nsolver.main()\n")
        (self.folder / "tries.py").write_text(f"try:\n    from mpi4py import MPI\nexcept ImportError:\n    raise\n{use}\n")
        console = self.folder / "solve"
        console.write_text(f"#!{python}\nimport sys\nsys.path.insert(0, {str(self.folder)!r})\nimport solver\nsys.exit(solver.main())\n")
        console.chmod(0o755)
        for program in (["-m", "solver"], [self.folder / "tries.py"], [console], [python, "-c", f"from mpi4py import MPI; {use}"]):
            with self.subTest(program=program):
                code, job = self.run_job("--num_gpus", "2", "--show", "all", program, env={"PYTHON_EXEC": python})
                self.assert_code(0, code, job)
                self.assertEqual(["rank 0 of 2: 2", "rank 1 of 2: 2"],
                                 sorted(re.findall("rank . of .*", job.stdout)), job.output)

    def test_killed_agent_and_supervisor_leave_nothing(self):
        for count in (1, 2):
            job = self.start("--num_gpus", "2", self.program, "wait", self.folder / f"up.{count}")
            self.wait_for_files(job, f"up.{count}.*", 2)
            server, = [process for process in self.leftovers() if process.comm == "dslaunch-pmix"]
            agent = server.ppid
            supervisor, = [process.ppid for process in self.leftovers() if process.pid == agent]
            for pid in (agent, supervisor)[:count]:
                with contextlib.suppress(ProcessLookupError):  # the supervisor may have ended with its agent
                    os.kill(pid, signal.SIGKILL)
            self.assertNotEqual(0, self.wait(job), job.output)
            self.assert_nothing_left(within_s=20)
            self.assert_no_folder_left()

    def test_one_command_per_node_forms_one_world(self):
        options = ["--nnodes", "2", "--nproc_per_node", "1", "--master_addr", "127.0.0.1", "--master_port", "29417",
                   "--show", "all", self.program]
        first = self.start("--node_rank", "0", *options)
        second = self.start("--node_rank", "1", *options)
        for job in (first, second):
            self.assert_code(0, self.wait(job), job)
        self.assertRegex(first.stdout + second.stdout, "rank 0 of 2, 1 on its node: sum 1, left 1")
        self.assertRegex(first.stdout + second.stdout, "rank 1 of 2, 1 on its node: sum 1, left 0")
        self.assert_nothing_left()


class MpichHere(OneWorldHere, LauncherCase):
    compiler = MPICH_CC
    mpirun = MPICH_RUN
    mpi = "pmi"
    server = "dslaunch-pmi"

    def test_pmi_server_of_agent_forms_one_world(self):
        code, job = self.run_job("--num_gpus", "2", "--mpi", "pmi", "--show", "all", self.program)
        self.assert_code(0, code, job)
        self.assert_one_world(job, 2, 1)



class OneWorldOnHosts(MpiCase):
    launchers = ("ssh", "openmpi", "pdsh")

    options = ()

    def by_mpirun(self, *program):
        mpirun = self.front.run([*self.mpirun, *map(str, program)], timeout_s=60)
        return sorted(LINE.findall(mpirun.stdout))

    def run_job(self, *arguments, **options):
        return super().run_job(*self.options, *arguments, **options)

    def ranks(self, *arguments, launcher="ssh"):
        code, job = self.run_job("--launcher", launcher, self.two_by_two(), "--show", "all", *arguments)
        self.assert_code(0, code, job)
        return sorted(LINE.findall(job.stdout))

    def test_prints_the_same_as_mpirun_on_every_launcher(self):
        self.assert_as_under_mpirun(self.program)

    def assert_as_under_mpirun(self, *program):
        expected = self.by_mpirun(*program)
        self.assertEqual(4, len(expected), expected)
        for launcher in self.launchers:
            with self.subTest(launcher=launcher):
                self.assertEqual(expected, self.ranks(*program, launcher=launcher))
        self.assert_nothing_left()
        self.assert_no_folder_left()

    def test_mpi_abort_is_first_cause(self):
        for code in (7, 0):
            got, job = self.run_job(self.two_by_two(), self.program, "abort", code)
            self.assert_code(code or 1, got, job)
            self.assert_prints(job, r"rank 1 \(node1, local rank 1\)")
            self.assert_nothing_left(within_s=15)
        self.assert_no_folder_left()

    def test_rank_that_ends_before_others_is_first_cause(self):
        code, job = self.run_job(self.two_by_two(), self.program, "exit")
        self.assert_code(1, code, job)
        self.assert_prints(job, r"rank 1 \(node1, local rank 1\)", "ended with 0 without MPI_Finalize")
        # The ranks of one node never use MPI, and end before and after the ranks of the other node.
        for seconds in (0, 3):
            code, job = self.run_job(self.two_by_two(), bash('[ $LOCAL_WORLD_SIZE = 2 ] && [ $GROUP_RANK = 1 ] && sleep $1 && exit 0; exec "$0"'), self.program, seconds)
            self.assert_code(1, code, job)
            self.assert_prints(job, r"rank [23] \(node2, local rank [01]\)", "ended with 0 without MPI_Init")
        self.assert_nothing_left(within_s=15)

    def test_killed_rank_is_first_cause(self):
        code, job = self.run_job(self.two_by_two(), self.program, "kill")
        self.assert_code(137, code, job)
        self.assert_prints(job, r"rank 1 \(node1, local rank 1\).*SIGKILL")
        self.assert_nothing_left(within_s=15)
        self.assert_no_folder_left()


class OnHosts(OneWorldOnHosts, HostsCase):
    mpirun = (MPIRUN, "--allow-run-as-root", "--oversubscribe", "--host", "node1:2,node2:2", "-np", "4")

    def test_messages_of_many_sizes_arrive(self):
        for size in (1, 4096, 1 << 20):
            self.assertEqual(self.by_mpirun(self.program, "ping", size), self.ranks(self.program, "ping", size))

    def test_mpi4py_prints_the_same_as_under_mpirun(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import mpi4py"], capture_output=True).returncode != 0:
            self.skipTest("there is no python3-mpi4py")
        script = self.folder / "script.py"
        script.write_text(MPI4PY)
        self.assertEqual(self.by_mpirun("/usr/bin/python3", script), self.ranks("/usr/bin/python3", script))
        code, job = self.run_job(self.two_by_two(), "--mpi", "pmix", "/usr/bin/python3", "-m", "mpi4py.bench", "ringtest",
                                 "-n", "100", "-l", "10")
        self.assert_code(0, code, job)
        self.assert_prints(job, r"time for 10 loops = .* \(4 processes, 100 bytes\)")


class MpichOnHosts(OneWorldOnHosts, HostsCase):
    compiler = MPICH_CC
    launchers = ("ssh", "pdsh")
    # The test hosts are one machine, so UCX treats a process on the other host as local unless it is limited to TCP.
    # With that limit, MPI_Finalize of Debian's MPICH 4.0 sometimes never returns, also under mpiexec, so the program
    # exits without it.
    options = ("--env", "UCX_TLS=tcp,self", "--env", "UCX_NET_DEVICES=eth0")
    mpirun = (MPICH_RUN, "-launcher", "ssh", "-hosts", "node1:2,node2:2", "-np", "4",
              "-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", "eth0")

    def test_prints_the_same_as_mpirun_on_every_launcher(self):
        self.assert_as_under_mpirun(self.program, "leave")


if __name__ == "__main__":
    if why_not():
        print(why_not())
        sys.exit(77)
    main()
