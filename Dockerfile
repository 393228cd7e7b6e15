# The manager's image.
FROM rust:1.95-trixie AS build
# etcd-client makes its code from etcd's protocol files.
RUN apt-get update && \
    apt-get install -y --no-install-recommends protobuf-compiler libprotobuf-dev && \
    rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p manager --bin manager

FROM debian:trixie-slim
COPY --from=build /src/target/release/manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
