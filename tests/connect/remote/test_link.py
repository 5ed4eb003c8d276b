"""The stream between a task process and its worker, from inside the process"""

import os
import socket
import subprocess
import sys
import threading

from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.frames import FrameReader, frame
from tidemill.connect.remote.link import Link, pass_on
from tidemill.connect.remote.messages import PROTOCOL_VERSION
from tidemill.connect.task_spec import EXIT_LOST_WORKER
from tidemill.connect.tasks.control import TaskControl


def heard(worker: socket.socket) -> list[pb.FromTask]:
    return [pb.FromTask.FromString(each) for each in FrameReader().take(worker.recv(1 << 16))]


def test_a_process_says_that_it_is_there_and_hears_orders_in_turn() -> None:
    worker, stream = socket.socketpair()
    with worker, stream:
        link = Link(stream)
        (hello,) = heard(worker)
        assert (hello.hello.protocol_version, hello.hello.pid) == (PROTOCOL_VERSION, os.getpid())
        assert hello.hello.shares
        worker.sendall(frame(pb.ToTask(share=pb.Share())) + frame(pb.ToTask(seat=3, pause=pb.Pause())))
        assert link.first_order().WhichOneof("message") == "share"
        order = next(link.orders)
        assert (order.seat, order.WhichOneof("message")) == (3, "pause")
        link.say(pb.FromTask(seat=3, paused=pb.Paused()))
        assert [each.seat for each in heard(worker)] == [3]


def test_goodbye_waits_for_the_worker() -> None:
    worker, stream = socket.socketpair()
    with worker, stream:
        link = Link(stream)
        leaving = threading.Thread(target=link.farewell)
        leaving.start()
        assert worker.recv(1 << 16), "what was said before"
        assert worker.recv(1) == b""
        worker.close()
        assert list(link.orders) == []
        link.over()
        leaving.join(10)
        assert not leaving.is_alive()


def test_a_process_that_has_lost_its_worker_ends_at_once() -> None:
    worker, stream = socket.socketpair()
    program = (
        "import socket, threading, time\n"
        "from tidemill.connect.remote.link import Link\n"
        "threading.Thread(target=time.sleep, args=[600]).start()\n"
        f"Link(socket.socket(fileno={stream.fileno()})).first_order()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], pass_fds=[stream.fileno()])
    stream.close()
    assert worker.recv(1 << 16)
    worker.close()
    assert child.wait(30) == EXIT_LOST_WORKER


def test_orders_become_wishes() -> None:
    control = TaskControl(lambda news: None)
    pass_on(pb.ToTask(pause=pb.Pause()), control)
    assert control.paused
    pass_on(pb.ToTask(resume=pb.Resume()), control)
    pass_on(pb.ToTask(stop=pb.Stop(grace_ms=70)), control)
    assert (control.paused, control.stopping, control.grace_ms) == (False, True, 70)
