"""gRPC channels for the clients of the official SDKs."""

import grpc


class WithCredential:
    """Adds a credential to each call."""

    def __init__(self, authorization):
        self.authorization = authorization

    async def intercept(self, continuation, details, request):
        metadata = grpc.aio.Metadata(*(details.metadata or ()), ('authorization', self.authorization))
        return await continuation(details._replace(metadata=metadata), request)


# The library sees an interceptor of two kinds as one of the first kind only.
class UnaryWithCredential(WithCredential, grpc.aio.UnaryUnaryClientInterceptor):
    intercept_unary_unary = WithCredential.intercept


class StreamWithCredential(WithCredential, grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream = WithCredential.intercept


def address(url):
    """The address of a URL. In 0.3 the card has a URL, and the gRPC library takes an address."""
    return url.partition('://')[2] or url


def channels(authorization=None):
    """Makes channels whose calls have this credential: the value of the header."""
    kinds = [UnaryWithCredential, StreamWithCredential] if authorization else []
    interceptors = [kind(authorization) for kind in kinds]

    def channel(url):
        # Otherwise the library uses the proxies of the environment.
        options = [('grpc.enable_http_proxy', 0)]
        return grpc.aio.insecure_channel(address(url), options=options, interceptors=interceptors)

    return channel
