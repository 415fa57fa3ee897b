"""Authenticate a sidecar: find the pod that its token belongs to, without an API call for each connection.

The rule: a token authenticates a member only if the cluster has signed it, for gangctl's audience alone and for exactly
one pod, and if that pod exists now and belongs to a gang. A pod's labels alone must never be trusted: its name,
namespace, labels and owner have to agree. The token must never be logged or kept, only its hash.

The cluster's keys (JWKS) are fetched when a token names an unknown key, and once an hour. They must never be fetched
more than once in ten seconds, whatever keys the tokens name. While the API server is away, the known keys stay in use.
Where the cluster doesn't publish its keys, the API server is asked (TokenReview). An answer is asked for once while it
is cached, a minute at most, and only a few reviews run at once: a client that shows new tokens all the time must not
flood the API server. If too many reviews wait, the next ones are refused at once.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import jwt
from pydantic import Field, ValidationError

from gangctl.api.names import pod_name
from gangctl.cluster.errors import ClusterError, Retryable, Terminal
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.decoding import first_error
from gangctl.cluster.kube.projections import KubePod
from gangctl.cluster.port import MemberIdentity, Refusal, RefusalReason
from gangctl.kubernetes.schema import Raw

log = logging.getLogger(__name__)

LEEWAY_SECONDS: Final = 10
"""Maximum difference between the clocks of the API server and of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClaims:
    """The pod that a token is bound to."""

    namespace: str
    pod: str
    """Name of the pod."""
    uid: str
    """UID of the pod."""


class _Named(Raw):
    name: str
    uid: str


class _Account(Raw):
    name: str


class _Bound(Raw):
    namespace: str
    serviceaccount: _Account
    pod: _Named | None = None


class _Registered(Raw):
    iss: str
    aud: str | tuple[str, ...]
    sub: str
    exp: float
    nbf: float = 0.0


def parse_claims(claims: Mapping[str, Any], audience: str, now: float) -> TokenClaims | Refusal:
    """The pod that a token is bound to, if the token is valid for ``audience`` at ``now`` (seconds since the epoch).

    A token with a second audience is refused: a server of that audience could use it here.
    """
    bound = claims.get("kubernetes.io")
    try:
        token = _Registered.model_validate(claims)
        account = None if bound is None else _Bound.model_validate(bound)
    except ValidationError as error:
        return Refusal(RefusalReason.MALFORMED, f"the token's claims can't be read: {first_error(error)}")
    if token.exp + LEEWAY_SECONDS <= now:
        return Refusal(RefusalReason.EXPIRED, f"the token expired {now - token.exp:.0f} s ago")
    if token.nbf - LEEWAY_SECONDS > now:
        return Refusal(
            RefusalReason.NOT_YET_VALID, f"the token becomes valid in {token.nbf - now:.0f} s", retryable=True
        )
    if token.aud not in (audience, (audience,)):
        return Refusal(
            RefusalReason.WRONG_AUDIENCE, f"the token's audience is {token.aud!r:.100} instead of {audience} alone"
        )
    if account is None or account.pod is None or not account.pod.uid:
        return Refusal(RefusalReason.NOT_BOUND, "the token isn't bound to a pod")
    if token.sub != f"system:serviceaccount:{account.namespace}:{account.serviceaccount.name}":
        return Refusal(RefusalReason.MALFORMED, "the token's subject isn't the service account that it is bound to")
    return TokenClaims(namespace=account.namespace, pod=account.pod.name, uid=account.pod.uid)


ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"})
"""Algorithms with a public key. ``none`` would accept any token, and HS256 any token signed with the public key."""
FRESH_SECONDS: Final = 3600.0
MIN_FETCH_SECONDS: Final = 10.0
"""Minimum time between two fetches."""
REQUEST_SECONDS: Final = 5.0
"""Time limit of a fetch: sidecars wait for it."""
_UNREADABLE: Final = (jwt.PyJWTError, RecursionError)
"""What PyJWT raises; RecursionError because brackets may be nested as deeply as a token is long."""


class JWKS:
    """The keys, by key id."""

    def __init__(self, client: Client) -> None:
        self.issuer = ""
        """Issuer of the cluster's tokens, as the API server publishes it."""
        self._client = client
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._fresh_at = float("-inf")
        self._problem: ClusterError = Retryable("the cluster's signing keys haven't been fetched yet")
        self._fetching = asyncio.Lock()

    async def find(self, name: str) -> jwt.PyJWK | None:
        """The key with this id; None if the cluster publishes no such key.

        Raises:
            Retryable: no key is known, and the API server is away.
            Terminal: the API server doesn't publish its keys.
        """
        key, now = self._keys.get(name), time.monotonic()
        if key is not None and (now - self._fresh_at < FRESH_SECONDS or self._fetching.locked()):
            return key
        async with self._fetching:
            if name not in self._keys or time.monotonic() - self._fresh_at >= FRESH_SECONDS:
                await self._refresh()
        if not self._keys:
            raise self._problem
        return self._keys.get(name)

    async def verify(self, token: str) -> dict[str, Any] | Refusal:
        """The claims of a token that the cluster has signed. Its times and its audience aren't checked.

        Raises:
            Terminal: the API server doesn't publish its keys.
        """
        try:
            header = jwt.get_unverified_header(token)
        except _UNREADABLE as error:
            return Refusal(RefusalReason.MALFORMED, f"this isn't a signed token: {error!s:.100}")
        algorithm = str(header.get("alg"))
        if algorithm not in ALGORITHMS:
            return Refusal(
                RefusalReason.BAD_SIGNATURE, f"a signature with the algorithm {algorithm!r:.20} isn't accepted"
            )
        name = str(header.get("kid", ""))
        try:
            key = await self.find(name)
        except Retryable as error:
            return Refusal(
                RefusalReason.CANNOT_VERIFY, f"the cluster's signing keys can't be fetched: {error}", retryable=True
            )
        if key is None:
            return Refusal(
                RefusalReason.UNKNOWN_KEY, f"the token is signed with the key {name!r:.60}, which isn't the cluster's"
            )
        return self._signed(token, key)

    def _signed(self, token: str, key: jwt.PyJWK) -> dict[str, Any] | Refusal:
        try:
            # parse_claims() checks times and audience, and gives a better reason than PyJWT.
            checks: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
            return jwt.decode(token, key, algorithms=[key.algorithm_name], issuer=self.issuer, options=checks)
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
            return Refusal(RefusalReason.BAD_SIGNATURE, "the cluster has not signed the token")
        except (jwt.InvalidIssuerError, jwt.MissingRequiredClaimError):
            return Refusal(RefusalReason.WRONG_ISSUER, "the token wasn't issued by this cluster")
        except _UNREADABLE as error:
            return Refusal(RefusalReason.MALFORMED, f"the token can't be read: {error!s:.100}")

    async def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._fetched_at < MIN_FETCH_SECONDS:
            return
        self._fetched_at = now
        try:
            found, issuer = await self._published()
        except ClusterError as error:
            self._problem = error
            log.warning("the cluster's signing keys can't be fetched: %s", error)
            return
        if found.keys() != self._keys.keys():
            log.info("the cluster's signing keys are now %s", ", ".join(sorted(found)))
        self._keys, self.issuer, self._fresh_at = found, issuer, now

    async def _published(self) -> tuple[dict[str, jwt.PyJWK], str]:
        configuration = await self._client.get("/.well-known/openid-configuration", REQUEST_SECONDS)
        published = await self._client.get("/openid/v1/jwks", REQUEST_SECONDS)
        issuer, entries = configuration.get("issuer"), published.get("keys")
        if not isinstance(issuer, str) or not issuer or not isinstance(entries, list):
            raise Terminal("the API server publishes no issuer of tokens, or no keys")
        found = dict(filter(None, map(_key, entries)))
        if not found:
            raise Terminal("the API server publishes no usable key")
        return found, issuer


def _key(entry: Any) -> tuple[str, jwt.PyJWK] | None:
    """Id and key; None if the key can't be used here."""
    try:
        key = jwt.PyJWK.from_dict(entry)
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
        log.info("one of the cluster's keys can't be used: %s", error)
        return None
    return (str(key.key_id), key) if key.key_id and key.algorithm_name in ALGORITHMS else None


T = TypeVar("T")

MAX_WAITING: Final = 500
"""Maximum number of reviews that wait or run."""
MAX_CACHED: Final = 10_000
ACCEPTED_SECONDS: Final = 60.0
"""Time for which it is cached that a token is accepted."""
REFUSED_SECONDS: Final = 10.0
"""Time for which it is cached that a token is refused."""


class Reviews(Generic[T]):
    """Answers by what is reviewed: a token, or a user's right."""

    def __init__(self, concurrency: int, ask: Callable[[str], Awaitable[T]], accepts: Callable[[T], bool]) -> None:
        """A cache of answers that are never None.

        Args:
            concurrency: how many reviews run at once.
            ask: asks the API server; raises ClusterError if there is no answer.
            accepts: whether an answer is cached as long as one that accepts a token.
        """
        self._slots = asyncio.Semaphore(concurrency)
        self._ask = ask
        self._accepts = accepts
        self._waiting = 0
        self._cache: OrderedDict[bytes, tuple[T, float]] = OrderedDict()
        """By the hash of the question: the answer, and until when (monotonic seconds) it is cached."""

    async def find(self, question: str) -> T:
        """The cached answer, else a new one.

        Raises:
            Retryable: too many reviews wait.
            ClusterError: there is no answer.
        """
        key = hashlib.sha256(question.encode()).digest()
        cached = self._cached(key)
        if cached is not None:
            return cached
        if self._waiting >= MAX_WAITING:
            raise Retryable("too many reviews wait")
        self._waiting += 1
        try:
            async with self._slots:
                cached = self._cached(key)  # The same request may have been answered meanwhile.
                if cached is not None:
                    return cached
                found = await self._ask(question)
        finally:
            self._waiting -= 1
        seconds = ACCEPTED_SECONDS if self._accepts(found) else REFUSED_SECONDS
        self._cache[key] = found, time.monotonic() + seconds
        self._cache.move_to_end(key)
        while len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return found

    def _cached(self, key: bytes) -> T | None:
        found = self._cache.get(key)
        return found[0] if found is not None and time.monotonic() < found[1] else None


REVIEWS_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
CONCURRENCY: Final = 8
_USER: Final = "system:serviceaccount:"


class ReviewedUser(Raw):
    """Whom a token authenticates."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class TokenStatus(Raw):
    """What a TokenReview answers."""

    authenticated: bool = False
    user: ReviewedUser = ReviewedUser()
    audiences: tuple[str, ...] = ()
    error: str = ""


class _Review(Raw):
    status: TokenStatus = TokenStatus()


async def review_token(client: Client, token: str, audiences: tuple[str, ...] = ()) -> TokenStatus:
    """The API server's answer about a token. ``audiences``: none = those of the API server itself."""
    spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    # It changes nothing, so a replica that doesn't lead may send it as well.
    answer = await client.request("POST", REVIEWS_PATH, body=body, unguarded=True)
    try:
        return _Review.model_validate_json(answer).status
    except ValidationError as error:
        raise Retryable("the API server's answer isn't a TokenReview") from error


class TokenReviewer:
    """Reviews tokens for one audience."""

    def __init__(self, client: Client, audience: str) -> None:
        self._client = client
        self._audience = audience
        self._reviews = Reviews(CONCURRENCY, self._ask, lambda found: isinstance(found, TokenClaims))

    async def review(self, token: str) -> TokenClaims | Refusal:
        """The API server's answer."""
        try:
            return await self._reviews.find(token)
        except ClusterError as error:
            return Refusal(RefusalReason.CANNOT_VERIFY, f"the token can't be reviewed: {error}", retryable=True)

    async def _ask(self, token: str) -> TokenClaims | Refusal:
        status = await review_token(self._client, token, (self._audience,))
        if not status.authenticated:
            return Refusal(RefusalReason.BAD_SIGNATURE, f"the API server doesn't accept the token: {status.error:.200}")
        if self._audience not in status.audiences:  # an authenticator that knows no audiences returns none
            return Refusal(RefusalReason.WRONG_AUDIENCE, f"the token's audience isn't {self._audience}")
        namespace, _, account = status.user.username.removeprefix(_USER).partition(":")
        name, uid = (
            next(iter(status.user.extra.get(f"authentication.kubernetes.io/pod-{one}", ())), "")
            for one in ("name", "uid")
        )
        if not status.user.username.startswith(_USER) or not account or not name or not uid:
            return Refusal(RefusalReason.NOT_BOUND, "the token isn't bound to a pod")
        return TokenClaims(namespace=namespace, pod=name, uid=uid)


MAX_TOKEN_CHARACTERS: Final = 16_384
"""Maximum length of a token, in characters."""
APPEARING_SECONDS: Final = 30.0
"""Time in which an unknown pod may still appear: a sidecar can connect before the watch shows its pod."""
MAX_UNKNOWN_PODS: Final = 10_000
"""Maximum number of unknown pods that are remembered."""

FindPod = Callable[[str], KubePod | None]
"""The pod with this UID, if a gang owns it."""
FindGang = Callable[[str], tuple[str, str] | None]
"""Namespace and name of the gang with this UID, if it exists."""


class TokenAuthenticator:
    """Authenticates tokens for one audience."""

    def __init__(self, client: Client, audience: str) -> None:
        self._audience = audience
        self.jwks = JWKS(client)
        """The cluster's keys."""
        self._reviewer = TokenReviewer(client, audience)
        self._unknown_until: OrderedDict[str, float] = OrderedDict()
        """By UID of an unknown pod: until when (monotonic seconds) it may still appear."""

    async def authenticate(self, token: str, find: FindPod, gang: FindGang) -> MemberIdentity | Refusal:
        """The pod that this token belongs to, or why the token is refused."""
        if len(token) > MAX_TOKEN_CHARACTERS or not token.isascii():
            return Refusal(RefusalReason.MALFORMED, "the token is too long, or isn't ASCII")
        claims = await self._claims(token, find)
        if isinstance(claims, Refusal):
            return claims
        pod = find(claims.uid)
        return self._missing(claims.uid) if pod is None else self._matched(pod, claims, gang)

    def _matched(self, found: KubePod, claims: TokenClaims, gang: FindGang) -> MemberIdentity | Refusal:
        pod = found.pod
        self._remember_unknown(pod.uid, 0.0)
        if (found.namespace, pod.name) != (claims.namespace, claims.pod):
            text = f"the pod with its UID is {found.namespace}/{pod.name} instead of {claims.namespace}/{claims.pod}"
            return Refusal(RefusalReason.NOT_A_MEMBER, f"{text:.300}")
        owner = gang(found.gang)
        if owner is None:
            return Refusal(RefusalReason.POD_GONE, f"the gang of pod {pod.name} is gone, or can't be read")
        namespace, name = owner
        expected = pod_name(name, pod.member, pod.incarnation)
        if found.owner != found.gang or found.namespace != namespace or pod.name != expected:
            text = (
                f"pod {pod.name} is labelled as {pod.member}, incarnation {pod.incarnation}, of gang {namespace}/{name}"
            )
            return Refusal(RefusalReason.NOT_A_MEMBER, f"{text}, which doesn't match its name or its owner")
        if pod.terminated:
            return Refusal(RefusalReason.POD_GONE, f"pod {pod.name} has ended")
        return MemberIdentity(found.gang, pod.member, pod.incarnation, pod.uid, namespace)

    def _missing(self, uid: str) -> Refusal:
        now = time.monotonic()
        if uid not in self._unknown_until:
            self._remember_unknown(uid, now + APPEARING_SECONDS)
        if now < self._unknown_until[uid]:
            return Refusal(
                RefusalReason.UNKNOWN_POD, f"no gang has a pod {uid:.40}, or that pod isn't known yet", retryable=True
            )
        return Refusal(RefusalReason.POD_GONE, f"no gang has a pod {uid:.40}")

    def _remember_unknown(self, uid: str, until: float) -> None:
        self._unknown_until[uid] = until
        if len(self._unknown_until) > MAX_UNKNOWN_PODS:
            self._unknown_until.popitem(last=False)

    async def _claims(self, token: str, find: FindPod) -> TokenClaims | Refusal:
        try:
            signed = await self.jwks.verify(token)
        except Terminal:
            return await self._reviewed(token, find)
        return signed if isinstance(signed, Refusal) else parse_claims(signed, self._audience, time.time())

    async def _reviewed(self, token: str, find: FindPod) -> TokenClaims | Refusal:
        """Ask the API server, but only about a token that could be a member's."""
        try:
            decoded = jwt.decode(token, options={"verify_signature": False})
        except _UNREADABLE as error:
            return Refusal(RefusalReason.MALFORMED, f"the token can't be read: {error!s:.100}")
        unverified = parse_claims(decoded, self._audience, time.time())
        if isinstance(unverified, Refusal):
            return unverified
        if find(unverified.uid) is None:
            return self._missing(unverified.uid)
        return await self._reviewer.review(token)


class ReplicaAuthenticator:
    """Authenticates the other replicas: by a token of this process's own account, for an audience of their own."""

    def __init__(self, client: Client, jwks: JWKS, audience: str, own_token: Callable[[], str]) -> None:
        """``jwks``: shared, so that keys are fetched once. ``own_token``: this process's. OSError: it can't be read."""
        self._audience = audience
        self._own_token = own_token
        self._client = client
        self._jwks = jwks
        self._reviews = Reviews(CONCURRENCY, self._ask, lambda status: status.authenticated)

    async def refusal(self, token: str) -> Refusal | None:
        """Return why this token is none of a replica; None if it is one."""
        try:
            own, claimed = (jwt.decode(one, options={"verify_signature": False}) for one in (self._own_token(), token))
        except (OSError, ValueError, *_UNREADABLE) as error:
            return Refusal(RefusalReason.MALFORMED, f"the token can't be read: {error!s:.100}")
        user = own.get("sub")
        if not user or claimed.get("sub") != user:  # The API server is asked only about what may be a replica's token.
            return Refusal(RefusalReason.NOT_A_MEMBER, f"the token isn't one of {user}")
        with suppress(Terminal):  # Without keys, Links bounds the reviews.
            if isinstance(signed := await self._jwks.verify(token), Refusal):
                return signed
        try:
            status = await self._reviews.find(token)
        except ClusterError as error:
            return Refusal(RefusalReason.CANNOT_VERIFY, f"the token can't be reviewed: {error}", retryable=True)
        if not status.authenticated or status.user.username != user:
            return Refusal(RefusalReason.BAD_SIGNATURE, f"the API server doesn't accept the token: {status.error:.200}")
        if self._audience not in status.audiences:
            return Refusal(RefusalReason.WRONG_AUDIENCE, f"the token's audience isn't {self._audience}")
        return None

    async def _ask(self, token: str) -> TokenStatus:
        return await review_token(self._client, token, (self._audience,))
