"""The dashboard behind real proxies, configured as docs/how-to/dashboard.md shows."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mainspring.cli import serving
from mainspring.web.site import Dashboard
from tests.docs.test_code_blocks import blocks
from tests.support.processes import PROJECT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.web.conftest import Shop

pytestmark = pytest.mark.processes
TOKEN = "a-token-of-enough-characters"
PAGE = PROJECT / "docs/how-to/dashboard.md"
BARE = "server { listen 443 ssl; location / { proxy_pass http://localhost:7070; } }\n"


def shown(language: str) -> str:
    """The configuration of a proxy on the page."""
    (found,) = [block.text for block in blocks(PAGE.read_text()) if block.language == language]
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@asynccontextmanager
async def served(shop: Shop, auth: str | None) -> AsyncGenerator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with serving.serving(Dashboard(shop.app, auth=auth), listening):
            yield listening.getsockname()[1]


@asynccontextmanager
async def running(command: list[str], port: int, folder: Path) -> AsyncGenerator[None]:
    """A proxy, from when it listens."""
    environment = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "said").open("wb") as said:
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=said, stderr=said)
    try:
        async with asyncio.timeout(120):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    assert process.returncode is None, (folder / "said").read_text()
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    break
        yield
    finally:
        process.kill()  # asked to stop, it would wait for streams that nobody reads any more
        await process.wait()


@asynccontextmanager
async def nginx(text: str, behind: int, folder: Path) -> AsyncGenerator[httpx.AsyncClient]:
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None or shutil.which("openssl") is None:
        pytest.skip("nginx and openssl are not both installed (apt-get install nginx openssl)")
    port, key, certificate = free_port(), folder / "ops.key", folder / "ops.pem"
    made = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ops.example"),
        *("-addext", "subjectAltName=DNS:ops.example", "-keyout", str(key), "-out", str(certificate)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;").replace(":7070", f":{behind}")
    text = text.replace("/etc/ssl/ops.pem", str(certificate)).replace("/etc/ssl/ops.key", str(key))
    if "ssl_certificate" not in text:
        text = text.replace(" ssl;", ";")
    paths = " ".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"{user} daemon off; pid {folder}/pid; error_log stderr; events {{}}\nhttp {{ access_log off; {paths}\n{text}}}\n"
    )
    async with running([program, "-p", str(folder), "-c", str(configuration), "-e", "stderr"], port, folder):
        trust = ssl.create_default_context(cafile=str(certificate)) if "ssl_certificate" in text else False
        scheme = "https" if trust else "http"
        transport = _Pinned(verify=trust)
        async with httpx.AsyncClient(
            transport=transport, base_url=f"{scheme}://ops.example:{port}", timeout=60
        ) as asking:
            yield asking


class _Pinned(httpx.AsyncHTTPTransport):
    """Resolves every name to this machine."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        here = request.url.copy_with(host="127.0.0.1")
        extensions = {**request.extensions, "sni_hostname": request.url.host}
        sent = httpx.Request(
            request.method, here, headers=request.headers, stream=request.stream, extensions=extensions
        )
        return await super().handle_async_request(sent)


@asynccontextmanager
async def caddy(text: str, behind: int, folder: Path) -> AsyncGenerator[httpx.AsyncClient]:
    program = shutil.which("caddy")
    if program is None:
        pytest.skip("caddy is not installed (apt-get install caddy)")
    port = free_port()
    text = text.replace("ops.example", f"http://ops.example:{port}").replace(":7070", f":{behind}")
    configuration = folder / "Caddyfile"
    configuration.write_text(f"{{\n  admin off\n  auto_https off\n}}\n{text}")
    async with (
        running([program, "run", "--config", str(configuration), "--adapter", "caddyfile"], port, folder),
        httpx.AsyncClient(transport=_Pinned(), base_url=f"http://ops.example:{port}", timeout=60) as asking,
    ):
        yield asking


@asynccontextmanager
async def traefik(text: str, behind: int, folder: Path) -> AsyncGenerator[httpx.AsyncClient]:
    program = shutil.which("traefik")
    if program is None:
        pytest.skip("traefik is not installed")
    port, configuration = free_port(), folder / "dynamic.yaml"
    configuration.write_text(text.replace(":7070", f":{behind}"))
    command = [
        *(program, f"--entryPoints.websecure.address=127.0.0.1:{port}", f"--providers.file.filename={configuration}"),
        *("--global.checkNewVersion=false", "--global.sendAnonymousUsage=false", "--log.level=ERROR"),
    ]
    async with (
        running(command, port, folder),
        # It makes a certificate of its own, for no name in particular.
        httpx.AsyncClient(
            transport=_Pinned(verify=False), base_url=f"https://ops.example:{port}", timeout=60
        ) as asking,
    ):
        async with asyncio.timeout(120):
            while not await _is_routed(asking):  # noqa: ASYNC110  (another process, which says nothing)
                await asyncio.sleep(0.02)
        yield asking


async def _is_routed(asking: httpx.AsyncClient) -> bool:
    """Whether the proxy has read its file. It listens before that, and closes or refuses what it gets."""
    try:
        return (await asking.get("/healthz")).status_code != 404
    except httpx.TransportError:
        return False


PROXIES: dict[str, tuple[Any, str]] = {
    "nginx": (nginx, "nginx"),
    "caddy": (caddy, "caddyfile"),
    "traefik": (traefik, "yaml"),
}


@pytest.mark.parametrize("name", PROXIES)
async def test_one_signs_in_acts_and_is_told_of_changes_through_a_proxy(
    one_shop: Shop, name: str, tmp_path: Path
) -> None:
    proxy, language = PROXIES[name]
    async with served(one_shop, TOKEN) as behind, proxy(shown(language), behind, tmp_path) as asking:
        html = {"accept": "text/html"}
        assert (await asking.get("/runs", headers=html)).status_code == 401
        origin = str(asking.base_url).rstrip("/")
        entered = await asking.post(
            "/login", data={"token": TOKEN, "back": "/runs?limit=2"}, headers={"origin": origin}
        )
        assert (entered.status_code, entered.headers["location"]) == (303, "/runs?limit=2")
        assert ("secure" in entered.headers["set-cookie"].lower()) is origin.startswith("https")
        page = await asking.get("/runs?limit=2", headers=html)
        assert page.status_code == 200
        fields = {"csrf": asking.cookies["mainspring_csrf"], "id": "nightly"}
        assert (await asking.post("/schedules/pause", data=fields, headers={"origin": origin})).status_code == 303
        assert (await one_shop.app.schedules.describe("nightly")).paused
        foreign = await asking.post("/schedules/resume", data=fields, headers={"origin": "https://evil.example"})
        assert foreign.status_code == 403
        async with asyncio.timeout(120), asking.stream("GET", "/live?page=/schedules") as stream:
            lines = stream.aiter_lines()
            async for line in lines:
                if line == "event: fresh":
                    break
            await one_shop.app.schedules.resume("nightly")
            async for line in lines:  # a proxy that buffers would keep it to itself until the stream ends
                if line == "event: changed":
                    break


@pytest.mark.parametrize("name", [*PROXIES, "nginx without a setting"])
async def test_a_proxy_does_not_make_the_world_this_machine(one_shop: Shop, name: str, tmp_path: Path) -> None:
    proxy, text = (nginx, BARE) if name not in PROXIES else (PROXIES[name][0], shown(PROXIES[name][1]))
    async with served(one_shop, None) as behind, proxy(text, behind, tmp_path) as asking:
        for path in ("/", "/api/runs", "/metrics"):
            assert (await asking.get(path)).status_code == 403
        assert (await asking.post("/api/runs/cancel", json={"ids": ["order-4"]})).status_code == 403


async def test_a_request_whose_headers_do_not_arrive_is_given_up(
    one_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEADER_SECONDS", 0.5)
    async with served(one_shop, None) as port:
        for begun in (
            b"",
            b"GET /runs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            async with asyncio.timeout(120):
                answered = await reader.read()
            assert (b"200 OK" in answered) is begun.startswith(b"GET /healthz")
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /live?page=/runs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(120):
            await reader.readuntil(b"event: fresh")  # what has arrived is not cut short
            await one_shop.app.runs.cancel("order-4")
            await asyncio.sleep(2 * serving.HEADER_SECONDS)
            await reader.readuntil(b"event: changed")
        writer.close()
