"""Listeners: where clients are let in, and on what terms

`listeners`, `advertised.listeners`, `listener.security.protocol.map`, `controller.listener.names` and
`inter.broker.listener.name` together say which addresses there are, what is spoken there and what others are told. They
are read by Kafka's rules, with its sentences where it has some. A setting behind `listener.name.<name>.` holds for that
listener only.

Where Kafka asks for more than one node needs, less is enough: the listener that brokers use among themselves need not
be named, and a node by itself that listens at every interface and has no `advertised.listeners` tells a client the
address that it has connected to.

Among nodes each is a client of the others, on the terms of the listener that it reaches them by: so a broker has terms
for the controllers' listener too, where it has none of that name itself, and a controller that is no broker for the
listener of brokers, if it names that.

Not here: opening sockets (`server`), certificates (`tidemill.core.runtime.tls`).
"""

import enum
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidemill.broker.principals import DEFAULT_RULES, MappingRule, parse_rules
from tidemill.core.config import ConfigError, Value, nearest
from tidemill.core.security.tls_settings import (
    CHECK_HOST,
    PROTOCOLS,
    SERVER_TLS,
    ClientAuth,
    TlsSettings,
    server_tls,
)

DEFAULT_PROTOCOL_MAP = ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT")
PREFIX = "listener.name."
EVERY_INTERFACE = frozenset({"", "0.0.0.0", "::"})
_END_POINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_PORT_MAX = 65_535


class SecurityProtocol(enum.Enum):
    """What is spoken at a listener; the value is its number in Kafka's metadata."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        """Whether it is encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """One `NAME://host:port`; an empty host is every interface."""

    name: str
    host: str
    port: int

    @property
    def is_anywhere(self) -> bool:
        """Whether it is every interface of the machine: nothing that anybody could be told."""
        return self.host in EVERY_INTERFACE

    def __str__(self) -> str:
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSpec:
    """The terms of one listener. `tls` is there if its protocol has it, `sasl` (mechanisms) is not honoured yet.

    `principal_rules` make a principal of the name in a client's certificate.
    """

    name: str
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsSettings | None = None
    sasl: tuple[str, ...] = ()
    principal_rules: tuple[MappingRule, ...] = DEFAULT_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """All that is said about listeners; those of `controllers` are opened by one of several nodes only.

    `control` are the terms on which controllers are reached, None with `control_problems` where they cannot be.
    """

    listen: tuple[ListenAddress, ...]
    advertised: Mapping[str, ListenAddress]
    specs: Mapping[str, ListenerSpec]
    inter_broker: str
    controllers: tuple[ListenAddress, ...] = ()
    control: ListenerSpec | None = None
    control_problems: tuple[str, ...] = ()
    advertised_controllers: Mapping[str, ListenAddress] = field(default_factory=dict)

    def told(self, name: str) -> ListenAddress | None:
        """What is said of the address of a listener for clients: as it is advertised, else as it is."""
        return self.advertised.get(name) or next((each for each in self.listen if each.name == name), None)


def is_prefixed(name: str) -> bool:
    """Whether a setting is about one listener."""
    return name.startswith(PREFIX)


def prefixed_names(listeners: str) -> Iterator[str]:
    """Every setting that there may be for one of `listeners`, a list of NAME://host:port."""
    for text in listeners.split(","):
        name = text.strip().partition("://")[0].lower()
        if name:
            yield from (f"{PREFIX}{name}.{key}" for key in SERVER_TLS.names())


def read_listeners(values: Mapping[str, Value], given: Mapping[str, str]) -> Listeners:
    """What parsed broker settings say; `given` is all that was set, for what has a prefix. Raises ConfigError."""
    names = _Names(values, given)
    everyone = names.end_points("listeners", distinct_ports=True)
    advertised = {each.name: each for each in names.end_points("advertised.listeners", distinct_ports=False)}
    problems = list(_contradictions(names, everyone, advertised))
    listen = tuple(each for each in everyone if each.name not in names.controllers)
    if not listen and everyone and names.has_broker:
        problems.append("Configuration listeners names no listener for clients: add PLAINTEXT://host:port")
    there = dict.fromkeys((*(each.name for each in everyone), *names.controllers, *names.watched))
    problems += _prefix_problems(given, tuple(there))
    specs = {}
    for each in listen:
        try:
            specs[each.name] = _spec(each.name, str(each), names.protocol(each.name), values, given)
        except ConfigError as error:
            problems += error.problems
    for name in names.watched:
        try:
            spec = _spec(name, name, names.protocol(name), values, given, serves=False)
        except ConfigError as error:
            problems += error.problems
        else:
            if spec.tls is None or spec.tls.has_trust:  # else nothing is said of whom to trust there
                specs[name] = spec
    if problems:
        raise ConfigError(problems)
    controllers = tuple(each for each in everyone if each.name in names.controllers)
    control, control_problems = _control(names, controllers, values, given)
    watched = {name: names.protocol(name) for name in names.watched}
    protocols = {**watched, **{name: spec.protocol for name, spec in specs.items()}, **names.of_controllers()}
    problems += _unused(given, protocols)
    if problems:
        raise ConfigError(problems)
    return Listeners(
        listen=listen,
        advertised={name: each for name, each in advertised.items() if name not in names.controllers},
        advertised_controllers={name: each for name, each in advertised.items() if name in names.controllers},
        specs=specs,
        inter_broker=names.inter_broker or (_first_of(listen) if listen else ""),
        controllers=controllers,
        control=control,
        control_problems=control_problems,
    )


class _Names:
    """Which listener names there are, and what is spoken at each."""

    def __init__(self, values: Mapping[str, Value], given: Mapping[str, str]) -> None:
        self._values = values
        self.controllers = tuple(name.upper() for name in _strings(values["controller.listener.names"]))
        self.has_controller = "controller" in _strings(values["process.roles"])
        self.has_broker = "broker" in _strings(values["process.roles"])
        self._map = self._protocols(explicit="listener.security.protocol.map" in given)
        self.inter_broker = str(values["inter.broker.listener.name"] or "").upper()
        protocol = values["security.inter.broker.protocol"]
        if self.inter_broker and protocol is not None:
            raise ConfigError(
                ["Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."]
            )
        if protocol is not None:
            self.inter_broker = str(protocol).upper()
        if self.inter_broker and self.inter_broker not in self._map:
            raise ConfigError(
                [
                    f"Listener with name {self.inter_broker} defined in inter.broker.listener.name not found in "
                    "listener.security.protocol.map."
                ]
            )

    def _protocols(self, *, explicit: bool) -> dict[str, SecurityProtocol]:
        found: dict[str, SecurityProtocol] = {}
        for pair in _strings(self._values["listener.security.protocol.map"]):
            name, sign, protocol = pair.rpartition(":")
            kind = SecurityProtocol.__members__.get(protocol.strip().upper())
            name = name.strip().upper()
            if not (sign and name) or kind is None:
                raise ConfigError(
                    [
                        f"Error parsing configuration property 'listener.security.protocol.map': {pair!r} is not "
                        f"NAME:PROTOCOL with one of {', '.join(SecurityProtocol.__members__)}"
                    ]
                )
            if found.setdefault(name, kind) is not kind:
                raise ConfigError(
                    [
                        f"Error parsing configuration property 'listener.security.protocol.map': {name} is there "
                        f"twice, with {found[name].name} and {kind.name}"
                    ]
                )
        if not explicit:
            secure = {name for name, kind in found.items() if kind is not SecurityProtocol.PLAINTEXT}
            listed = (text.partition("://")[0].upper() for text in _strings(self._values["listeners"]))
            if secure.isdisjoint((*listed, *self.controllers)):
                for name in self.controllers:
                    found.setdefault(name, SecurityProtocol.PLAINTEXT)
        return found

    @property
    def watched(self) -> tuple[str, ...]:
        """The listener of brokers, where a controller that is none names it."""
        foreign = self.inter_broker and not self.has_broker and self.inter_broker not in self.controllers
        return (self.inter_broker,) if foreign else ()

    def protocol(self, name: str) -> SecurityProtocol:
        return self._map[name]

    def of_controllers(self) -> dict[str, SecurityProtocol]:
        return {name: self._map[name] for name in self.controllers if name in self._map}

    def end_points(self, key: str, *, distinct_ports: bool) -> list[ListenAddress]:
        """The addresses that `key` lists; raises ConfigError."""
        texts = _strings(self._values[key])
        found = [self._end_point(key, text) for text in texts]
        shown = ",".join(texts)
        if len({each.name for each in found}) < len(found):
            raise ConfigError([f"Each listener must have a different name, {key}: {shown}"])
        if distinct_ports:
            _check_ports(found, f"{key}: {shown}")
        return found

    def _end_point(self, key: str, text: str) -> ListenAddress:
        match = _END_POINT.fullmatch(text)
        if match is None:
            raise ConfigError(
                [f"Invalid value {text!r} for configuration {key}: expected NAME://host:port with a number as port"]
            )
        name, host, port = match[1].upper(), match[2], int(match[3])
        if not name:
            raise ConfigError([f"Invalid value {text!r} for configuration {key}: it has no name before ://"])
        if not 0 <= port <= _PORT_MAX:
            raise ConfigError([f"Invalid value {text!r} for configuration {key}: port {port} is not in 0..{_PORT_MAX}"])
        if name not in self._map:
            raise ConfigError(
                [
                    f"No security protocol defined for listener {name}: add {name}:PLAINTEXT or {name}:SSL to "
                    "listener.security.protocol.map"
                ]
            )
        return ListenAddress(name, host, port)


def _check_ports(found: Sequence[ListenAddress], where: str) -> None:
    """Two listeners may have one port only if one of them is IPv4 and the other IPv6 (KIP-797)."""
    by_port: dict[int, list[ListenAddress]] = {}
    for each in found:
        if each.port:
            by_port.setdefault(each.port, []).append(each)
    for port, several in by_port.items():
        if len(several) < 2:
            continue
        families = [_ip_version(each.host) for each in several]
        if None in families:
            raise ConfigError([f"Each listener must have a different port, {where}"])
        if sorted(filter(None, families)) != [4, 6]:
            raise ConfigError(
                [f"If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, {where}, "
                 f"port: {port}"]
            )  # fmt: skip


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return None


def _contradictions(
    names: _Names, everyone: Sequence[ListenAddress], advertised: Mapping[str, ListenAddress]
) -> Iterator[str]:
    listening = [each.name for each in everyone]
    options = ",".join(listening)
    if names.controllers and names.has_controller and not set(names.controllers) & set(listening):
        yield (
            "controller.listener.names must contain at least one value appearing in the 'listeners' configuration "
            f"when running the KRaft controller role: it has {','.join(names.controllers)}, listeners {options}"
        )
    strangers = [name for name in advertised if name not in listening]
    if strangers:
        yield (
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
            f"{','.join(strangers)}. The valid options based on the current configuration are {options}"
        )
    for each in advertised.values():
        if each.host and each.is_anywhere:
            yield (
                f"advertised.listeners cannot use the nonroutable meta-address {each.host}. Use a routable IP address."
            )
        elif not each.host:
            yield f"advertised.listeners {each.name} has no host that a client could connect to"
    if not names.has_broker and (of_clients := [each.name for each in everyone if each.name not in names.controllers]):
        yield (
            f"listeners has {','.join(of_clients)}, and with process.roles=controller it may have those of "
            "controller.listener.names only: no clients are served there"
        )
    if not names.inter_broker or not names.has_broker:
        return
    if names.inter_broker in names.controllers:
        yield (
            "controller.listener.names must not contain an explicitly set inter.broker.listener.name configuration "
            "value when process.roles contains the broker role"
        )
    told = [name for name in advertised or listening if name not in names.controllers]
    if names.inter_broker not in told:
        yield (
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options "
            f"based on currently configured listeners are {','.join(told)}"
        )


def _prefix_problems(given: Mapping[str, str], names: Sequence[str]) -> Iterator[str]:
    """Settings for one listener that are for none, or that cannot be had for one."""
    for setting in filter(is_prefixed, given):
        name, key = _apart(setting, names)
        if name.upper() not in names or name != name.lower():
            yield f"Configuration {setting!r} is for a listener that there is not: listeners has {','.join(names)}"
        elif key.startswith("sasl."):
            yield f"Configuration {setting!r} cannot be honoured: SASL is not available yet"
        elif key not in SERVER_TLS:
            near = nearest(key, SERVER_TLS.names())
            hint = "" if near is None else f": did you mean {PREFIX}{name}.{near}?"
            yield f"Configuration {setting!r} cannot be honoured for one listener{hint}"


def _apart(setting: str, names: Iterable[str]) -> tuple[str, str]:
    """Whose setting it is and which; the name of a listener may have dots in it, as that of a setting."""
    text = setting.removeprefix(PREFIX)
    own = [name for name in names if text.lower().startswith(f"{name.lower()}.")]
    size = len(max(own, key=len, default=text.partition(".")[0]))
    return text[:size], text[size + 1 :]


def _control(
    names: _Names, controllers: Sequence[ListenAddress], values: Mapping[str, Value], given: Mapping[str, str]
) -> tuple[ListenerSpec | None, tuple[str, ...]]:
    """On what terms controllers speak to one another, and brokers to them; or what is wrong with that."""
    if not names.controllers:
        return None, ()
    where = controllers[0] if controllers else None
    name = where.name if where is not None else names.controllers[0]
    if name not in names.of_controllers():
        return None, (
            f"Controller listener with name {name} defined in controller.listener.names not found in "
            "listener.security.protocol.map.",
        )
    try:
        spec = _spec(name, str(where or name), names.protocol(name), values, given, serves=where is not None)
    except ConfigError as error:
        return None, tuple(error.problems)
    return spec, tuple(f"Listener {where or name}: {problem}" for problem in _not_by_grpc(spec.tls))


def _not_by_grpc(tls: TlsSettings | None) -> Iterator[str]:
    """What cannot be had between controllers, whose TLS is gRPC's."""
    if tls is None:
        return
    if not tls.has_trust:
        yield (
            "it is not said who may vouch for the other controllers: set ssl.truststore.location to a PEM file with "
            "their certificates"
        )
    if set(tls.protocols) != set(PROTOCOLS):
        yield f"ssl.enabled.protocols is always {','.join(PROTOCOLS)} between controllers: set it so for this listener"
    if tls.cipher_suites:
        yield "ssl.cipher.suites cannot be chosen between controllers: set it empty for this listener"
    if tls.key_password:
        yield (
            "the private key that controllers use cannot be encrypted: take the password off it with `openssl pkey "
            "-in KEY.pem -out PLAIN.pem`, keep the file readable by this user only, and leave ssl.key.password out"
        )
    if tls.client_auth is ClientAuth.REQUESTED:
        yield "ssl.client.auth is none or required between controllers: set it so for this listener"


def _spec(
    name: str,
    where: str,
    protocol: SecurityProtocol,
    values: Mapping[str, Value],
    given: Mapping[str, str],
    *,
    serves: bool = True,
) -> ListenerSpec:
    """The terms of one listener; `serves` unless this node is only a client there."""
    if protocol.has_sasl:
        raise ConfigError(
            [f"Listener {where} asks for {protocol.name}: SASL is not available yet, only PLAINTEXT and SSL are"]
        )
    if not protocol.has_tls:
        return ListenerSpec(name=name, protocol=protocol)
    prefix = f"{PREFIX}{name.lower()}."
    own = {key.removeprefix(prefix): text for key, text in given.items() if key.startswith(prefix)}
    try:
        mine = SERVER_TLS.parse(own, ignore_unknown=True)
        merged = {key: mine[key] if key in own else values[key] for key in SERVER_TLS.names()}
        return ListenerSpec(
            name=name,
            protocol=protocol,
            tls=server_tls(merged, serves=serves),
            principal_rules=parse_rules(str(merged["ssl.principal.mapping.rules"])),
        )
    except ConfigError as error:
        raise ConfigError([f"Listener {where}: {problem}" for problem in error.problems]) from None
    except ValueError as error:
        raise ConfigError([f"Listener {where}: ssl.principal.mapping.rules: {error}"]) from None


def _unused(given: Mapping[str, str], protocols: Mapping[str, SecurityProtocol]) -> Iterator[str]:
    """Settings of TLS that nobody would notice the lack of."""
    encrypted = {name.lower() for name, protocol in protocols.items() if protocol.has_tls}
    for setting in given:
        name, key = _apart(setting, protocols) if is_prefixed(setting) else ("", setting)
        if key not in SERVER_TLS or name in encrypted or (not name and (encrypted or key == CHECK_HOST)):
            continue
        which = f"listener {name.upper()} has" if name else "no listener has"
        what = "not the protocol SSL" if name else "the protocol SSL"
        yield f"Configuration {setting!r} has no effect: {which} {what}; give one SSL://host:port in listeners"


def _first_of(listen: Sequence[ListenAddress]) -> str:
    """The listener for brokers where none is named: that of Kafka's default if there is one, else the first."""
    plain = [each.name for each in listen if each.name == "PLAINTEXT"]
    return plain[0] if plain else listen[0].name


def _strings(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
