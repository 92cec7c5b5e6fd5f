"""The scripted model, on its own.

    python agent.py --port PORT
"""

import argparse
import asyncio

from scripted_model import start


async def main(port):
    server, _ = await start(port)
    await server.serve_forever()


arguments = argparse.ArgumentParser()
arguments.add_argument("--port", type=int, required=True)
asyncio.run(main(arguments.parse_args().port))
