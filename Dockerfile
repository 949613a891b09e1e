# An image with the command-line tool, the libraries and the headers, built from this checkout:
#
#     docker build -t tilewright .
#     docker run --rm -v "$PWD:/models" tilewright bench model.onnx
#
# Machine code is for the CPU that the container runs on. The cache folder is /cache: mount a volume there to keep it.

FROM debian:12 AS build
WORKDIR /tilewright
COPY scripts/setup.sh scripts/packages.txt scripts/
RUN bash scripts/setup.sh build
COPY . .
RUN cmake --preset release -DTILEWRIGHT_TESTS=OFF -DTILEWRIGHT_BENCH=OFF -DTILEWRIGHT_PYTHON=OFF
RUN cmake --build build
RUN cd build && cpack -G DEB

FROM debian:12-slim
COPY --from=build /tilewright/build/package/*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/*.deb && rm -rf /tmp/*.deb /var/lib/apt/lists/*
RUN useradd --create-home user && install -d -o user -m 700 /cache
USER user
ENV XDG_CACHE_HOME=/cache
WORKDIR /models
ENTRYPOINT ["tilewright"]
