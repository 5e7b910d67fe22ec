"""gRPC channels for the clients of the official SDKs, and what their events and errors carry."""

import grpc
from google.rpc import error_details_pb2, status_pb2


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


def metadata(event):
    """The metadata of whatever a stream carries."""
    return getattr(event, event.WhichOneof('payload')).metadata


def cursor(event):
    """Where a reader resumes after this event."""
    return metadata(event)['longshore']['cursor']


def reason(error):
    """The domain and the word for programs in the details of an error. The SDKs map only words of their domain."""
    details = dict(error.trailing_metadata())['grpc-status-details-bin']
    info = error_details_pb2.ErrorInfo()
    assert status_pb2.Status.FromString(details).details[0].Unpack(info), details
    return info.domain, info.reason
